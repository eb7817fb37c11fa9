<<<<<<< HEAD
"""Simulations of clusters: traces, scenarios and tables around `core.fleet`."""
=======
"""Many nodes at once: what goes into a simulation and what comes out of it, files and processes."""
>>>>>>> 9b94f60 (Traces of clusters: what they have, lack and mean)
