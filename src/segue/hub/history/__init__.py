"""Follow sessions as they grow."""
