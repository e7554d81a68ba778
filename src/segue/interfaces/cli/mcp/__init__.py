"""The commands that serve history to agents: `segue mcp`, `segue mcp install`."""
