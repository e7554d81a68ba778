"""The request handlers of the session browser's pages."""
