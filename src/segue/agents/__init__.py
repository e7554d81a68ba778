"""Agents: the code that answers prompts. An agent implements `agents.base.Agent`."""
