"""The results of the checks, for people and as JSON."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Level = Literal["must", "should"]
Outcome = Literal["passed", "failed", "warning", "skipped"]
_MARKS: dict[Outcome, str] = {
    "passed": "ok",
    "failed": "FAIL",
    "warning": "warn",
    "skipped": "skip",
}


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of one check; `detail` says what the agent did or why it was skipped."""

    check: str
    version: int
    level: Level
    rule: str
    outcome: Outcome
    detail: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All results for one agent. `versions` are the protocol versions that the agent speaks.

    `sessions_left` counts the sessions that the checks made and could not delete.
    """

    agent: dict[str, Any]
    versions: list[int]
    results: list[Result]
    sessions_left: int = 0

    @property
    def failures(self) -> list[Result]:
        """The results of rules that the agent breaks."""
        return [result for result in self.results if result.outcome == "failed"]

    def count(self, outcome: Outcome) -> int:
        """Return the number of results with an outcome."""
        return sum(result.outcome == outcome for result in self.results)

    def to_json(self) -> str:
        """Return the report as JSON."""
        fields = msgspec.to_builtins(self)
        counts = {outcome: self.count(outcome) for outcome in _MARKS}
        text = msgspec.json.format(msgspec.json.encode({**fields, "counts": counts}), indent=2)
        return text.decode()

    def to_text(self) -> str:
        """Return the report for people."""
        name = self.agent.get("title") or self.agent.get("name") or "the agent"
        version = self.agent.get("version")
        lines = [f"{name} {version}" if version else str(name)]
        for protocol_version in self.versions:
            lines += ["", f"ACP version {protocol_version}"]
            for result in self.results:
                if result.version != protocol_version:
                    continue
                lines.append(f"  {_MARKS[result.outcome]:<5} {result.check:<14} {result.rule}")
                if result.detail:
                    lines.append(f"  {'':<5} {'':<14} {result.detail}")
        lines += [
            "",
            f"{self.count('passed')} passed, {self.count('failed')} failed,"
            f" {self.count('warning')} warnings, {self.count('skipped')} skipped",
        ]
        if self.sessions_left:
            lines.append(f"The agent keeps {self.sessions_left} sessions of the checks.")
        return "\n".join(lines)
