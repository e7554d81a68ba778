"""Requests to models: their usage, and where they begin and end in the events."""
