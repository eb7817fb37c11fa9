"""The command line: groups, shared options and output. Each command lies with its subject."""
