"""Read and follow the history of sessions."""
