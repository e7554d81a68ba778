"""Read and write the files in Claude Code's home directory."""
