"""Webhooks: tell other servers what happened in a workspace."""
