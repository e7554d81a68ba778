"""The request and response types of the REST API."""
