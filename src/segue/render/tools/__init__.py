"""Tool calls for people: one row for each call, and what it shows when it is open."""
