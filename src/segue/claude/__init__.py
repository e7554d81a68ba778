"""The session functions of `claude_agent_sdk` over Claude Code's files.

    from segue.claude import list_sessions, get_session_messages

    for session in list_sessions(limit=20):
        print(session.summary, len(get_session_messages(session.session_id)))

Names, arguments, results and errors are those of the SDK, so switching needs only another import.
The functions work on the same files, do not need Claude Code, and can read damaged transcripts.
The module also has functions that the SDK lacks: trash, export, repair, relocate, pin.
"""

from typing import TYPE_CHECKING, Any

from segue.model.anthropic.sdk_types import ForkSessionResult, SDKSessionInfo, SessionMessage
from segue.sources.claude.conversation.tree import SessionTree, TreeEntry
from segue.sources.claude.edit.doctor import Diagnosis, Finding
from segue.sources.claude.edit.trash import TrashedSession
from segue.sources.claude.format.processes import SessionIsLive

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
from .importing import import_session_to_store
from .memory import InMemorySessionStore
from .protocol import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from .sessions import (
    get_session_info,
    get_session_messages,
    get_subagent_messages,
    list_sessions,
    list_subagents,
    project_key_for_directory,
)
from .stored import (
    delete_session_via_store,
    fork_session_via_store,
    get_session_info_from_store,
    get_session_messages_from_store,
    get_subagent_messages_from_store,
    list_sessions_from_store,
    list_subagents_from_store,
    rename_session_via_store,
    tag_session_via_store,
)
from .summary import fold_session_summary

if TYPE_CHECKING:
    from .store import SegueSessionStore

__all__ = [
    "Diagnosis",
    "Finding",
    "ForkSessionResult",
    "InMemorySessionStore",
    "SDKSessionInfo",
    "SegueSessionStore",
    "SessionIsLive",
    "SessionKey",
    "SessionListSubkeysKey",
    "SessionMessage",
    "SessionStore",
    "SessionStoreEntry",
    "SessionStoreListEntry",
    "SessionSummaryEntry",
    "SessionTree",
    "TrashedSession",
    "TreeEntry",
    "archive_session",
    "delete_session",
    "delete_session_via_store",
    "doctor",
    "empty_trash",
    "export_html",
    "export_markdown",
    "fold_session_summary",
    "fork_session",
    "fork_session_via_store",
    "get_session_info",
    "get_session_info_from_store",
    "get_session_messages",
    "get_session_messages_from_store",
    "get_session_tree",
    "get_subagent_messages",
    "get_subagent_messages_from_store",
    "import_session_to_store",
    "list_sessions",
    "list_sessions_from_store",
    "list_subagents",
    "list_subagents_from_store",
    "list_trash",
    "pin_session",
    "project_key_for_directory",
    "relocate_session",
    "rename_session",
    "rename_session_via_store",
    "restore_session",
    "tag_session",
    "tag_session_via_store",
    "trash_session",
    "unarchive_session",
    "unpin_session",
]


def __getattr__(name: str) -> Any:
    if name != "SegueSessionStore":
        raise AttributeError(f"module 'segue.claude' has no attribute {name!r}")
    # Only this class needs a database; everything else is fast to import.
    from .store import SegueSessionStore

    return SegueSessionStore
