"""The managers' state files together: identify, restore, and what only podslice remembers."""
