"""An agent that stores nothing: a session is lost when it is closed.

Editors see an empty list. Loading, resuming, deleting and forking are not advertised.
"""

import segue


class Shout:
    async def run(self, turn: segue.Turn) -> segue.StopReason:
        await turn.send_message(turn.text.upper())
        return "end_turn"


segue.serve_acp(Shout(), name="shout", persist=None)
