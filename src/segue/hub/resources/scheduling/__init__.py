"""Deployments, and the schedules on which they run."""
