"""The agents' journal streams: authentication of agents, and bounds on what they send."""
