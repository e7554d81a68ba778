"""Serve the HTTP interfaces in one or several processes."""
