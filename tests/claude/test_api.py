"""The names, arguments and fields that programs written for claude-agent-sdk rely on."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

from segue import claude

# Names and defaults as in claude-agent-sdk 0.2.184; after `*` what only we and TypeScript have.
SIGNATURES = {
    "list_sessions": "directory=None, limit=None, offset=0, include_worktrees=True,"
    " *, include_programmatic=True",
    "get_session_info": "session_id, directory=None",
    "get_session_messages": "session_id, directory=None, limit=None, offset=0,"
    " *, include_system_messages=False",
    "list_subagents": "session_id, directory=None",
    "get_subagent_messages": "session_id, agent_id, directory=None, limit=None, offset=0",
    "rename_session": "session_id, title, directory=None",
    "tag_session": "session_id, tag, directory=None",
    "delete_session": "session_id, directory=None",
    "fork_session": "session_id, directory=None, up_to_message_id=None, title=None",
    "archive_session": "session_id, directory=None",
    "unarchive_session": "session_id, directory=None",
    "project_key_for_directory": "directory=None",
    "import_session_to_store": "session_id, store, *, directory=None, include_subagents=True,"
    " batch_size=500",
    "fold_session_summary": "prev, key, entries",
    "list_sessions_from_store": "session_store, directory=None, limit=None, offset=0",
    "get_session_info_from_store": "session_store, session_id, directory=None",
    "get_session_messages_from_store": "session_store, session_id, directory=None, limit=None,"
    " offset=0",
    "list_subagents_from_store": "session_store, session_id, directory=None",
    "get_subagent_messages_from_store": "session_store, session_id, agent_id, directory=None,"
    " limit=None, offset=0",
    "rename_session_via_store": "session_store, session_id, title, directory=None",
    "tag_session_via_store": "session_store, session_id, tag, directory=None",
    "delete_session_via_store": "session_store, session_id, directory=None",
    "fork_session_via_store": "session_store, session_id, directory=None, up_to_message_id=None,"
    " title=None",
}
EXTRAS = {
    "get_session_tree": "session_id, directory=None",
    "relocate_session": "session_id, new_directory, directory=None",
    "pin_session": "session_id, directory=None, *, days=365",
    "unpin_session": "session_id, directory=None",
    "doctor": "session_id, directory=None, *, repair=False",
    "export_markdown": "session_id, directory=None",
    "export_html": "session_id, directory=None",
    "trash_session": "session_id, directory=None",
    "restore_session": "session_id",
    "list_trash": "",
    "empty_trash": "older_than_days=0",
}
TYPES = {
    "SDKSessionInfo": "session_id summary last_modified file_size custom_title first_prompt"
    " git_branch cwd tag created_at archived",
    "SessionMessage": "type uuid session_id message parent_tool_use_id parent_agent_id",
    "ForkSessionResult": "session_id",
}
STORES = {"SessionStore", "InMemorySessionStore", "SegueSessionStore"}
KEYS = {
    "SessionKey": "project_key session_id subpath",
    "SessionListSubkeysKey": "project_key session_id",
    "SessionStoreEntry": "type uuid timestamp",
    "SessionStoreListEntry": "session_id mtime",
    "SessionSummaryEntry": "session_id mtime data",
}
OTHERS = {"Diagnosis", "Finding", "SessionIsLive", "SessionTree", "TrashedSession", "TreeEntry"}


@pytest.mark.parametrize("name", [*SIGNATURES, *EXTRAS])
def test_functions_have_the_sdk_arguments(name: str) -> None:
    parameters = inspect.signature(getattr(claude, name)).parameters.values()
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    assert str(inspect.Signature(plain)) == f"({(SIGNATURES | EXTRAS)[name]})"


@pytest.mark.parametrize("name", TYPES)
def test_result_types_have_the_sdk_fields(name: str) -> None:
    fields = [field.name for field in dataclasses.fields(getattr(claude, name))]
    assert fields == TYPES[name].split()


@pytest.mark.parametrize("name", KEYS)
def test_typed_dictionaries_have_the_sdk_keys(name: str) -> None:
    assert list(getattr(claude, name).__annotations__) == KEYS[name].split()


def test_module_exports_exactly_the_documented_names() -> None:
    assert set(claude.__all__) == {*SIGNATURES, *EXTRAS, *TYPES, *OTHERS, *STORES, *KEYS}
    for name in claude.__all__:
        assert getattr(claude, name).__doc__


def test_import_loads_no_heavy_module() -> None:
    code = "import segue.claude, sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "sqlite3", "click", "rich", "subprocess", "asyncpg", "http"}
    ours = {name for name in loaded if name.startswith("segue.")}
    assert not {name for name in ours if name.startswith(("segue.hub", "segue.store"))}
