"""An agent that offers an archive: editors can list its sessions, but not open them.

It lists all sessions of the store. Capabilities in `without` are not advertised, and their methods
do not exist.
"""

import segue


class Archivist:
    async def run(self, turn: segue.Turn) -> segue.StopReason:
        await turn.send_message("This is an archive. Its sessions can be listed, but not opened.")
        return "refusal"


segue.serve_acp(
    Archivist(),
    name="archivist",
    without={"load", "resume", "delete", "fork", "title", "archive"},
)
