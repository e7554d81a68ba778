"""Render texts as safe HTML: Markdown, code, JSON, and the differences of two versions."""
