"""Claude Code's sessions, for Python programs: the session functions of `claude_agent_sdk`.

    from segue.claude import list_sessions, get_session_messages

    for session in list_sessions(limit=20):
        print(session.summary, len(get_session_messages(session.session_id)))

Names, arguments, answers and errors are those of the SDK, so that changing the import is all it
takes; they work on the same files, need no Claude Code, and never stumble over a damaged one.
Below them in this list is what the SDK does not have.
"""

from ..sources.claude.doctor import Diagnosis, Finding
from ..sources.claude.live import SessionIsLive
from ..sources.claude.trash import TrashedSession
from ..sources.claude.tree import SessionTree, TreeEntry
from ..sources.claude.values import ForkSessionResult, SDKSessionInfo, SessionMessage
from .changes import (
    archive_session,
    delete_session,
    fork_session,
    rename_session,
    tag_session,
    unarchive_session,
)
from .extras import (
    doctor,
    empty_trash,
    export_html,
    export_markdown,
    get_session_tree,
    list_trash,
    pin_session,
    relocate_session,
    restore_session,
    trash_session,
    unpin_session,
)
from .sessions import (
    get_session_info,
    get_session_messages,
    get_subagent_messages,
    list_sessions,
    list_subagents,
    project_key_for_directory,
)

__all__ = [
    "Diagnosis",
    "Finding",
    "ForkSessionResult",
    "SDKSessionInfo",
    "SessionIsLive",
    "SessionMessage",
    "SessionTree",
    "TrashedSession",
    "TreeEntry",
    "archive_session",
    "delete_session",
    "doctor",
    "empty_trash",
    "export_html",
    "export_markdown",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "get_session_tree",
    "get_subagent_messages",
    "list_sessions",
    "list_subagents",
    "list_trash",
    "pin_session",
    "project_key_for_directory",
    "relocate_session",
    "rename_session",
    "restore_session",
    "tag_session",
    "trash_session",
    "unarchive_session",
    "unpin_session",
]
