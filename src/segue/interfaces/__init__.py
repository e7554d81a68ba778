"""Doors: each translates one dialect to hub calls, and events back."""
