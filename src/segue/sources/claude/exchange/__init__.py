"""Copy sessions between Claude Code's files and the store."""
