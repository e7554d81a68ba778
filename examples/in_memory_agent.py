"""An agent that keeps its sessions in memory, and for a week.

Nothing is written to disk. While it runs, editors list its sessions by page and by directory,
search them and open them again; each is named after its first prompt; one that nobody has used
for seven days is forgotten.
"""

import segue


class Counter:
    """Counts the words of a conversation, as a stand-in for something that thinks."""

    async def run(self, turn: segue.Turn) -> segue.StopReason:
        words = len(turn.text.split())
        for event in await turn.history():
            if event.type == "user_message":
                words += sum(len(block.text.split()) for block in event.body.content)
        await turn.delta("So far ")
        await turn.delta(f"you have said {words} words.")
        return "end_turn"


if __name__ == "__main__":
    segue.serve_acp(Counter(), name="counter", title="Word counter", persist="memory", keep_days=7)
