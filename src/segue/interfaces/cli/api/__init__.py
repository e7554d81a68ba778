"""The REST API as commands: `segue sessions`, `agents`, `environments`, `skills`.

The commands are generated from `openapi.json`, an excerpt of the document that the server
publishes. Flags, output and exit codes are those of the vendor's own command line, so that
scripts work with both. Without `--base-url`, the REST application answers in this process, from
the local store.
"""
