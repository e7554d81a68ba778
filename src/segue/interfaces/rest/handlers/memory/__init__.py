"""The request handlers of memory stores, their memories and the versions of these."""
