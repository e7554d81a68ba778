"""Estimate what model requests cost, from their tokens and list prices."""
