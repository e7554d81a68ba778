"""Estimate what model requests cost, from their tokens and the list prices of genai-prices."""
