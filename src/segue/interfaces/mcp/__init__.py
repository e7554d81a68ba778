"""An MCP server over all sessions: agents search and read what was asked and done before."""
