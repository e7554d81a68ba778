"""The sessions of Kimi Code."""
