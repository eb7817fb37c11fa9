"""The process of the agent: its start and end, sockets, health, locks and settings read anew."""
