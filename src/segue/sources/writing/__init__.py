"""Write a session for another tool, so that the tool resumes it: the neutral form and the port.

- `tool_names`: what a tool's tools mean, so that a call gets the target's name and arguments.
- `conversation`: the events of a session as the ordered items that a writer encodes.
- `report`: what the target cannot hold, and what becomes of it.
- `port`: `SessionWriter`, which a tool's package implements.
- `staging`: write files so that a kill leaves no half session.
"""
