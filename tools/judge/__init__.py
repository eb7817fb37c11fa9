"""New cases for Kubernetes v1.36.2's own managers, and the comparison of podslice with their answers.

The managers run behind a binary, the judge, which is not a part of this project: it reads cases as recordings have them
(`podslice.replay`) and prints results. docs/development/judge.md says how to hunt with it.
"""
