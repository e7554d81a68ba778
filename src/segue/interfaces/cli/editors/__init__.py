"""Commands that connect editors: ACP on standard input and output, and VS Code."""
