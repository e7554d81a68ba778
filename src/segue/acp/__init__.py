"""The Agent Client Protocol, both directions: JSON-RPC, wire types, a client."""
