"""The Agent Host Protocol: every session in VS Code's Sessions view, over a WebSocket at /ahp.

`app` accepts connections, `connection` answers their messages, `subscriptions` follows sessions,
`chat` turns events into the state and the actions of a chat, `catalog` into rows of the list. The
protocol is young: VERSIONS in `protocol` are the ones that are spoken here.
"""

from .app import AhpApp

__all__ = ["AhpApp"]
