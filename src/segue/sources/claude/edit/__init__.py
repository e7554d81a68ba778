"""Rename, tag, fork, move, repair and delete Claude Code's sessions."""
