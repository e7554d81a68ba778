"""Parts of a running turn: its inbox, and the threads that its agent has started."""
