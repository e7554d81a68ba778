"""The SDK's private helpers that its tests call, as far as we have the like."""
