"""Rebuild the conversation from the tree of messages in a transcript."""
