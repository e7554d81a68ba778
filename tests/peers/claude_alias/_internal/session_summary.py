"""The SDK's helpers for summaries, in terms of ours."""

from segue.claude import fold_session_summary
from segue.claude.summary import info_of as summary_entry_to_sdk_info

__all__ = ["fold_session_summary", "summary_entry_to_sdk_info"]
