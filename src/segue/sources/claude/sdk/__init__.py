"""What the Agent SDK's session functions return."""
