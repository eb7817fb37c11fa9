"""Bytes and sockets, no policy: the connection multiplexer, ttrpc, and NRI on top of them."""
