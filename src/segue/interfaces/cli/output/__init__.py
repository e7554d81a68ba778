"""Print sessions, events and tables for people and for programs."""
