"""An agent without any memory: its sessions are gone when they are closed, and editors are told so.

They see an empty list, and no marker for loading, resuming, deleting or forking.
"""

import segue


class Shout:
    async def run(self, turn: segue.Turn) -> segue.StopReason:
        await turn.say(turn.text.upper())
        return "end_turn"


segue.serve_acp(Shout(), name="shout", persist=None)
