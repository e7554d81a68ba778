"""The sessions of the GitHub Copilot CLI."""
