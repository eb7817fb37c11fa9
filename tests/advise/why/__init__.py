"""Tests of podslice.advise.why."""
