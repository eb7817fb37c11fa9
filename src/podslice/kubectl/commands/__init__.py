"""The commands of the kubectl plugin."""
