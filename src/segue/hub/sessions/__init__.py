"""Find, list, search, edit and delete sessions."""
