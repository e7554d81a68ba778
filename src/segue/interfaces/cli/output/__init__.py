"""Format sessions, events and tables for a terminal or a program."""
