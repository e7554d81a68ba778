"""The `acp` agent: any agent of the Agent Client Protocol, run as a child process.

`agent` answers a turn by prompting the process, `update_handler` converts the process's updates to
events, and `processes` manages the processes, one for each command.
"""

from segue.acp.wire import SessionInfo

from .agent import AcpAgent, AcpAgents

__all__ = ["AcpAgent", "AcpAgents", "SessionInfo"]
