"""A session as people read it: what the browser's pages and files to read have in common."""
