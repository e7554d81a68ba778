"""A session's modes, as modes and as the configuration option that takes their place."""

from __future__ import annotations

from ...acp import v1, v2, wire
from ...model.session import Session

MODES: dict[str, tuple[str, str]] = {
    "default": ("Ask", "Ask before anything that changes files or runs programs"),
    "acceptEdits": ("Accept edits", "Change files without asking; ask before running programs"),
    "plan": ("Plan", "Read and plan only"),
    "bypassPermissions": ("Do not ask", "Never ask for permission"),
}
MODE_OPTION = "mode"


def current_mode(session: Session) -> str:
    return session.mode if session.mode in MODES else "default"


def mode_state(session: Session) -> v1.ModeState:
    modes = [v1.Mode(id=id, name=name, description=text) for id, (name, text) in MODES.items()]
    return v1.ModeState(current_mode_id=current_mode(session), available_modes=modes)


def _choices() -> list[wire.SelectOption]:
    return [
        wire.SelectOption(value=id, name=name, description=text)
        for id, (name, text) in MODES.items()
    ]


def config_v1(session: Session) -> list[v1.ConfigOption]:
    return [
        v1.ConfigOption(
            id=MODE_OPTION,
            name="Mode",
            type="select",
            category="mode",
            current_value=current_mode(session),
            options=_choices(),
        )
    ]


def config_v2(session: Session) -> list[v2.ConfigOption]:
    return [
        v2.ConfigOption(
            config_id=MODE_OPTION,
            name="Mode",
            type="select",
            category="mode",
            current_value=current_mode(session),
            options=_choices(),
        )
    ]
