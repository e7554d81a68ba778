"""Records that sessions refer to: agents, environments, files, skills, vaults, memories, work."""
