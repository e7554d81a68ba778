"""Sources: sessions that other tools keep in their own files, read in place."""
