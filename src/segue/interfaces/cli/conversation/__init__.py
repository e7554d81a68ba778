"""Conversations with agents in the terminal."""
