"""The facts that an answer rests on: sources of machine, configuration and pods, and assumptions."""
