"""An archive to look at: its sessions can be listed, and not opened.

The sessions are those of the store, whoever made them. What an editor must not do with them is not
offered: there is no marker for it, and the method does not exist.
"""

import segue


class Archivist:
    async def run(self, turn: segue.Turn) -> segue.StopReason:
        await turn.say("This is an archive. Its sessions can be listed, and no more.")
        return "refusal"


segue.serve_acp(
    Archivist(),
    name="archivist",
    without={"load", "resume", "delete", "fork", "title", "archive"},
)
