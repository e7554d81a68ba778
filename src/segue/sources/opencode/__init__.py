"""The sessions of opencode."""
