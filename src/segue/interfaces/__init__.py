"""Interfaces: each translates one protocol into hub calls, and events back into it."""
