"""The SDK's helper for the key of a transcript, in terms of ours."""

from __future__ import annotations

import os

from segue.claude.importing import key_of
from segue.claude.protocol import SessionKey


def file_path_to_session_key(file_path: str, projects_dir: str) -> SessionKey | None:
    project, name, *below = os.path.relpath(file_path, projects_dir).split(os.sep)
    session = os.path.join(projects_dir, project, name.removesuffix(".jsonl") + ".jsonl")
    return key_of(session, file_path if below else None)
