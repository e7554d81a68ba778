"""Parts that the HTTP interfaces share: metrics, logs and rate limits."""
