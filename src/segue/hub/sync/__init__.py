"""Move sessions between the store, other tools and files."""
