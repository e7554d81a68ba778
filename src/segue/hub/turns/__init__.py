"""Run turns: one at a time per session, under a lease."""
