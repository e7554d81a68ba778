"""Translate transcript lines to events."""
