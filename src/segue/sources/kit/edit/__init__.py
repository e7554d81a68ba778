"""What edits of several tools need: running a tool's program, and a trash."""
