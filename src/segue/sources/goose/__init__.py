"""The sessions of Goose."""
