"""What a client follows: the list of sessions, chats, subagents and the forms of agents."""
