"""What an answer rests on: where machine, configuration and pods come from, and what is assumed."""
