"""One module per group of `segue` commands."""
