"""How protocol versions 1 and 2 differ: their encoders and their version policies."""
