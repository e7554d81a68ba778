"""The network access of a session: which hosts it may reach, and the proxy that checks this."""
