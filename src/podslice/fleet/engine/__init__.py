"""One cell of a simulation: clock, nodes, pods and what is counted."""
