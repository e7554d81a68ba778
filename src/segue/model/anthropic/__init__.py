"""Values whose names and fields Anthropic prescribes: in its Messages API and its Agent SDK."""
