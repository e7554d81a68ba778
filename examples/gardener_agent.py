"""An agent with a plan, two tools, a diff, a permission request and modes.

It removes trailing spaces from the file that the prompt names. In the mode "auto" it does not ask.
"""

import segue


class Gardener:
    async def run(self, turn: segue.Turn) -> segue.StopReason:
        name = turn.text.strip()
        path = f"{turn.cwd}/{name}"
        await turn.plan({f"Read {name}": "in_progress", "Remove spaces": "pending"})
        async with turn.tool("read", kind="read", input={"path": path}, locations=[path]) as call:
            with open(path) as file:
                old = file.read()
            call.add(f"{len(old.splitlines())} lines")
        await turn.plan({f"Read {name}": "completed", "Remove spaces": "in_progress"})
        new = "".join(line.rstrip() + "\n" for line in old.splitlines())
        async with turn.tool("edit", title=f"Tidy {name}", kind="edit", locations=[path]) as call:
            call.diff(path, old, new)
            if turn.mode == "ask" and not (await call.request_permission()).allowed:
                call.fail("The user did not allow it.")
                return "end_turn"
            with open(path, "w") as file:
                file.write(new)
        await turn.plan({f"Read {name}": "completed", "Remove spaces": "completed"})
        await turn.send_message(f"{name} is tidy.")
        return "end_turn"


modes = {"ask": "Ask before a change", "auto": "Change files without asking"}
segue.serve_acp(Gardener(), name="gardener", version="1.0.0", modes=modes)
