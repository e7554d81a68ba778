"""The state of a chat, made from a session's events."""
