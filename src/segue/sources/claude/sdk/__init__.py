"""Build the values that the Agent SDK's session functions return."""
