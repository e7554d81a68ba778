"""`segue sessions`, `agents`, `environments`: the sessions REST API from a terminal.

The flags, output and exit codes are those of the vendor's own command line, so that scripts move
between the two. Without `--base-url` the local store answers, through the REST door in this very
process: one translation, whether there is a server or not.
"""
