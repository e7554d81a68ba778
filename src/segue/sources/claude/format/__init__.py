"""The files of Claude Code: where they are, and how to read and append to them."""
