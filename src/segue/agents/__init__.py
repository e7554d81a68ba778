"""Agents: what answers a prompt."""

from segue.model.lifecycle import StopReason

from .base import Agent, Answer, Tools, Turn

__all__ = ["Agent", "Answer", "StopReason", "Tools", "Turn"]
