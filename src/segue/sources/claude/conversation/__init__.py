"""Find the conversation in the message tree of a transcript."""
