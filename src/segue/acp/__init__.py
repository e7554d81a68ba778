"""The Agent Client Protocol for agents and clients: JSON-RPC, wire types, transports, a client."""
