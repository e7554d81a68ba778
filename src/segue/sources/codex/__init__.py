"""The sessions of OpenAI's Codex CLI."""
