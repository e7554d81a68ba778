"""Serve the HTTP interfaces as one application, in one or several processes."""
