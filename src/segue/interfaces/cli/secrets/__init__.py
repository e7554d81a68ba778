"""The commands that find and remove secrets in sessions: `segue secrets`."""
