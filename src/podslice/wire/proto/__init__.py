"""Messages generated from the `.proto` files here by `python -m podslice.wire.proto.generate`; checked by
`make check-proto`."""
