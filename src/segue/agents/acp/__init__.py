"""The `acp` agent: any other agent of the Agent Client Protocol, run as a child process.

`agent.py` answers a turn by prompting the child; `hearing.py` turns what the child tells into
events; `children.py` keeps the processes, one a command, for all sessions that they answer.
"""

from segue.acp.wire import SessionInfo

from .agent import AcpAgent, AcpAgents

__all__ = ["AcpAgent", "AcpAgents", "SessionInfo"]
