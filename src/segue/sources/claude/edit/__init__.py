"""Rename, tag, fork, relocate, pin, repair and delete Claude Code sessions."""
