"""Keep the index of Claude Code's sessions current."""
