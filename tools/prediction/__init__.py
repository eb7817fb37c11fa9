"""A real kubelet of v1.36.2 beside `podslice admit` and `podslice inspect` (docs/development/prediction.md).

The kubelet runs on this machine, in a mount namespace with another machine's `/sys` and `/proc`, against a real API
server and a runtime that keeps its pods in memory.
"""
