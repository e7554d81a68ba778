"""The sessions of Gemini CLI."""
