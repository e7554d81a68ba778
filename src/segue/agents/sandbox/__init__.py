"""The sandbox of programs that tools start: files, network, processes and resource limits.

`launch.py` runs in segue and decides on a sandbox. The returned command starts `supervisor.py` in
its own process. The supervisor applies the sandbox, and ends every program of the sandbox when it
ends. The modules that the supervisor imports use neither `typing` nor `json`: their imports would
take longer than the sandbox.
"""

# The environment variable with the rules for the supervisor.
RULES_VARIABLE = "SEGUE_SANDBOX_RULES"
