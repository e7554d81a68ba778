"""Values of tool calls that are not stored: computed from the call's input and its result."""
