"""The sandbox of programs that tools start: files, network, processes and resource limits.

`launch.py` runs in segue and decides on a sandbox. The command that it returns starts
`supervisor.py` in a process of its own, which applies the sandbox and ends every program with it.
The modules that the supervisor imports use neither `typing` nor `json`: their imports would take
longer than the sandbox.
"""

# The environment variable with the rules for the supervisor.
RULES_VARIABLE = "SEGUE_SANDBOX_RULES"
