"""Translate events between the model and the REST API."""
