"""Webhooks: which changes are announced, and the deliveries of these announcements."""
