"""Claude Code's own sessions, read and written in place, in the files where it keeps them."""
