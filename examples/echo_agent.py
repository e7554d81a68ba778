"""An agent for editors in ten lines: put `python examples/echo_agent.py` into their settings."""

import segue


class Echo:
    async def run(self, turn: segue.Turn) -> segue.StopReason:
        await turn.say(f"You said: {turn.text}")
        return "end_turn"


segue.serve_acp(Echo(), name="echo")
