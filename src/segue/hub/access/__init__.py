"""API keys, browser logins, share links, settings and diagnostics of a workspace."""
