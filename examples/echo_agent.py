"""A ten-line agent for editors: add `python examples/echo_agent.py` to the editor's settings."""

import segue


class Echo:
    async def run(self, turn: segue.Turn) -> segue.StopReason:
        await turn.send_message(f"You said: {turn.text}")
        return "end_turn"


segue.serve_acp(Echo(), name="echo")
