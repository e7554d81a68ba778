"""The request handlers of the REST API, one module per resource."""
