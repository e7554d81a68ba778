"""The Agent Host Protocol: every session in VS Code's Sessions view, over a WebSocket at /ahp.

`app` accepts connections, and `connection` receives their messages. `handlers` answers requests and
carries out actions, `subscriptions` follows the list and single chats, and `chat` turns events into
the state and the actions of a chat. The protocol is young: VERSIONS in `protocol` are the ones that
are spoken here.
"""

from .app import AhpApp

__all__ = ["AhpApp"]
