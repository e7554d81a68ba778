"""An agent that declares something of each kind, and uses all that a turn offers."""

import asyncio
import sys
from typing import Any

import segue


class Declaring:
    def __init__(self) -> None:
        self.notes: list[str] = []

    async def session_opened(self, session: segue.Session, client: segue.Client) -> None:
        if session.cwd == "/private":
            raise segue.errors.Unauthorized("log in first")
        self.notes.append(f"opened by {client.info.get('name')}")

    async def session_configured(
        self, session: segue.Session, option: str, value: str | bool
    ) -> None:
        if value == "forbidden" and session.cwd == "/":
            raise segue.errors.InvalidInput("not this one")
        self.notes.append(f"{option}={value}")

    async def session_closed(self, session: segue.Session) -> None:
        print("closed", session.cwd, file=sys.stderr, flush=True)

    async def log_in(self, id: str) -> None:
        self.notes.append(f"login {id}")

    async def log_out(self) -> None:
        self.notes.append("logout")

    async def extension(self, method: str, params: Any) -> Any:
        if method != "_example/notes":
            raise NotImplementedError(method)
        return {"notes": self.notes, "params": params}

    async def notify(self, method: str, params: Any) -> None:
        self.notes.append(f"{method} {params}")

    async def run(self, turn: segue.Turn) -> segue.StopReason:
        command, _, rest = turn.text.partition(" ")
        await getattr(self, f"_{command}")(turn, rest)
        return "end_turn"

    async def _options(self, turn: segue.Turn, rest: str) -> None:
        await turn.send_message(f"{turn.mode} {turn.model} {dict(turn.options)}")

    async def _wait(self, turn: segue.Turn, rest: str) -> None:
        await turn.delta("begun")
        await asyncio.sleep(60)

    async def _meta(self, turn: segue.Turn, rest: str) -> None:
        client = turn.client
        await turn.send_message(f"{dict(turn.meta)} {dict(client.meta)} {client.capabilities}")

    async def _facts(self, turn: segue.Turn, rest: str) -> None:
        await turn.title("A fine title")
        await turn.usage(model="m", input_tokens=3, context_used=10, context_size=100, cost=0.5)
        await turn.set_option("mode", "auto")
        await turn.set_commands([segue.Command("other", "Another one", hint="what")])

    async def _files(self, turn: segue.Turn, path: str) -> None:
        text = await turn.client.read_text_file(path, line=2, limit=1)
        await turn.client.write_text_file(path, text.upper())

    async def _shell(self, turn: segue.Turn, rest: str) -> None:
        async with (
            turn.tool("shell", kind="execute", input={"command": rest}) as call,
            turn.client.terminal(rest, ["-l"], env={"A": "b"}, cwd=turn.cwd) as terminal,
        ):
            await call.show(terminal)
            status = await terminal.wait()
            call.exit_code = status.code
            call.add(await terminal.output())

    async def _form(self, turn: segue.Turn, rest: str) -> None:
        values = await turn.client.ask("Your name?", {"name": {"type": "string"}})
        page = await turn.client.open_url("Log in", "https://example.org/login")
        if page is not None:
            await page.complete()
        await turn.send_message(f"{values} {page is not None}")

    async def _extend(self, turn: segue.Turn, rest: str) -> None:
        await turn.client.notify("_example/began", {"a": 1})
        await turn.send_message(str(await turn.client.extension("_example/ask", {"b": 2})))

    async def _progress(self, turn: segue.Turn, rest: str) -> None:
        async with turn.tool("count", title="Count", meta={"example": 1}) as call:
            await call.progress("1 of 2")
            await call.update(title="Counting", input={"to": 2}, locations=["/a"])
            call.output = {"n": 2}

    async def _edit(self, turn: segue.Turn, ending: str) -> None:
        async with turn.tool("edit", kind="edit", locations=["/a"]) as call:
            call.diff("/a", "old", "new")
            if not (await call.request_permission()).allowed:
                return call.fail("not allowed") if ending == "fails" else None
            if ending == "raises":
                raise OSError("the disk is full")

    async def _always(self, turn: segue.Turn, tool: str) -> None:
        async with turn.tool(tool) as call:
            answer = await call.request_permission()
        await turn.send_message(f"{tool} {answer.allowed}")

    async def _broken(self, turn: segue.Turn, rest: str) -> None:
        async with turn.tool("fail") as call:
            await call.write("begun")
            raise RuntimeError("it broke")


if __name__ == "__main__":
    segue.serve_acp(
        Declaring(),
        name="declaring",
        modes={"ask": "Ask", "auto": "Auto", "forbidden": "Forbidden"},
        models=[
            segue.Choice("small", "Small", group="Own"),
            segue.Choice("big", "Big", "slow", "Own"),
        ],
        options=[segue.Switch("tests", "Run the tests", value=True)],
        commands={"options": "Show the options"},
        prompt={"image"},
        logins=[
            segue.LoginMethod(id="key", name="API key"),
            segue.LoginMethod(id="shell", name="In a terminal", args=("--setup",)),
        ],
        meta={"example": {"notes": True}},
    )
