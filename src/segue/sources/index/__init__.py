"""A source's disposable index: one SQLite file made from the tool's own files."""
