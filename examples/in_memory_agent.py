"""An agent that keeps its sessions in memory for a week.

Nothing is written to disk. While the agent runs, editors can list its sessions by page and by
directory, search them and open them again. A session's title is its first prompt. Sessions that
were not used for seven days are deleted.
"""

import segue


class Counter:
    """Counts the words of a conversation; a placeholder for a real agent."""

    async def run(self, turn: segue.Turn) -> segue.StopReason:
        words = len(turn.text.split())
        for event in await turn.history():
            if isinstance(event.body, segue.event.UserMessage):
                words += len(segue.content.plain_text(event.body.content).split())
        await turn.delta("So far ")
        await turn.delta(f"you have said {words} words.")
        return "end_turn"


if __name__ == "__main__":
    segue.serve_acp(Counter(), name="counter", title="Word counter", persist="memory", keep_days=7)
