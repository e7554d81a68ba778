"""Prepare a session's working directory before a turn and collect its results afterwards."""
