"""Render a session as HTML or Markdown for people."""
