"""The evidence of an answer: its sources, what is assumed, and what contradicts it."""
