"""Answer the requests of a client, and carry out its actions."""
