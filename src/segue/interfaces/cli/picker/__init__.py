"""The session picker: `segue` without a command, in a terminal.

`state` holds the rows and the selection, `view` draws them, `terminal` reads keys and writes the
screen, `picker` acts on keys, `tool_dialog` asks in which other tool a session continues. A library
for such screens would take longer to import than the first screen takes to appear.
"""
