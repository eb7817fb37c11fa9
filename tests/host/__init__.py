"""Tests of podslice.host."""
