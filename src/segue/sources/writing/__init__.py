"""Write a session for another tool, so that the tool resumes it: the neutral form and the port.

- `tool_names`: what a tool's tools mean, so that a call gets the target's name and arguments.
- `conversation`: the events of a session as the ordered items that a writer encodes.
- `report`: what the target cannot hold, and what becomes of it.
- `port`: `SessionWriter`, which a tool's package implements.
- `replies`: an agent's items grouped into replies of its model.
- `patches`: calls of `apply_patch`, by meaning.
- `shell_output`: the lines that some tools write around the output of a command.
- `json_lines`: records as lines of JSON.
- `handoff`: what a summary replaces, and the turns that stay.
- `staging`: write files or a directory so that a kill leaves no half session.
- `versions`: refuse a program that is too old to read what is written.
- `unfinished`: records of work that a killed process leaves to another one.
"""
