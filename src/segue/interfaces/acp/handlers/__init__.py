"""The request handlers of the ACP session methods."""
