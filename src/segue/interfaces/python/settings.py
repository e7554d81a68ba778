"""What the options of a program's session mean for its session and turns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from segue.acp.wire import McpServer
from segue.agents.base.spec import DEMO, FUNCTIONS, SUBAGENTS
from segue.agents.base.turn_hooks import HOOKS_KEY, TurnHooks
from segue.model.event import AgentRef

from .command_rules import CommandRules
from .hooks import ProgramHooks, check_matchers
from .hub_handle import StoreLocation
from .options import (
    DONT_ASK,
    CanUseTool,
    Options,
    agent_overrides,
    check_options,
    read_mcp_server,
    without_absent,
)
from .structured import INSTRUCTION, StructuredOutput
from .subagents import subagents
from .tools import FunctionTool, function_tools

MICRODOLLARS = 1_000_000  # in one US dollar


class SessionSettings(NamedTuple):
    """The options of a session, checked and converted."""

    model: str
    overrides: dict[str, Any]  # of the agent
    tools: dict[str, FunctionTool | StructuredOutput]  # functions of the program
    structured: StructuredOutput | None
    subagents: list[dict[str, Any]]
    mode: str | None  # the permission mode
    rules: CommandRules
    can_use_tool: CanUseTool | None
    hooks: ProgramHooks | None
    env: dict[str, str]
    servers: Sequence[McpServer]
    title: str | None
    roots: tuple[str, ...]
    budget: int | None  # in millionths of a US dollar
    include_deltas: bool
    store: StoreLocation

    @classmethod
    def from_options(cls, model: str, options: Options) -> SessionSettings:
        """Return the settings of these options. Raises InvalidInput for a bad model or option."""
        options = without_absent(options)
        check_options(model, options)
        functions = function_tools(options.get("tools") or ())
        roster = subagents(options, [tool.definition() for tool in functions.values()])
        output_format = options.get("output_format")
        structured = None if output_format is None else StructuredOutput(output_format)
        mode = options.get("permission_mode")
        budget = options.get("max_budget_usd")
        env = dict(options.get("env") or {})
        servers = (options.get("mcp_servers") or {}).items()
        overrides = _overrides(model, options, structured)
        rules = CommandRules(
            options.get("allowed_tools") or (), options.get("disallowed_tools") or ()
        )
        server_list = [read_mcp_server(name, config, env) for name, config in servers]
        return cls(
            model=model,
            overrides=overrides,
            tools={**functions, **({structured.name: structured} if structured else {})},
            structured=structured,
            subagents=roster,
            mode="default" if mode == DONT_ASK else mode,
            rules=rules,
            can_use_tool=None if mode == DONT_ASK else options.get("can_use_tool"),
            hooks=_hooks(options, rules),
            env=env,
            servers=server_list,
            title=options.get("title"),
            roots=tuple(os.path.abspath(path) for path in options.get("add_dirs") or ()),
            budget=None if budget is None else round(budget * MICRODOLLARS),
            include_deltas=options.get("include_partial_messages", False),
            store=options.get("store"),
        )

    def turn_hooks(self) -> TurnHooks | None:
        """Return the hooks and the environment of this program's turns; None without any."""
        hooks = TurnHooks(self.hooks, self.env)
        return None if hooks == TurnHooks() else hooks

    def turn_overrides(self, hooks_id: str | None) -> dict[str, Any]:
        """Return the settings of this program's own turns, which the session does not store."""
        # The model of this program answers, not the session's agent.
        own: dict[str, Any] = {"kind": DEMO if self.model == DEMO else "default"}
        if self.tools:
            own[FUNCTIONS] = [tool.definition() for tool in self.tools.values()]
        if hooks_id is not None:
            own[HOOKS_KEY] = hooks_id
        if self.subagents:
            own[SUBAGENTS] = self.subagents
        return {**self.overrides, **own}

    def agents_of_models(self, agent: AgentRef) -> list[AgentRef]:
        """Return the session's agent with each model that one of its subagents has."""
        models = [subagent["settings"].get("model") for subagent in self.subagents]
        return [
            replace(agent, overrides={**self.overrides, "model": model})
            for model in models
            if model is not None
        ]


def _overrides(model: str, options: Options, structured: StructuredOutput | None) -> dict[str, Any]:
    overrides = agent_overrides(model, options)
    if structured is not None:
        texts = (overrides.get("append_system"), INSTRUCTION)
        overrides["append_system"] = "\n\n".join(text for text in texts if text)
    return overrides


def _hooks(options: Options, rules: CommandRules) -> ProgramHooks | None:
    """Return the program's hooks, and the hook that forbids commands; None without any."""
    hooks = dict(options.get("hooks") or {})
    check_matchers(hooks)
    if rules.forbids_some:
        forbid = {"matcher": "Bash", "hooks": [rules.deny_forbidden]}
        hooks["PreToolUse"] = [forbid, *hooks.get("PreToolUse", ())]
    return ProgramHooks(hooks) if hooks else None
