"""Parts that the HTTP interfaces share: event streams, host checks, limits, metrics and logs."""
