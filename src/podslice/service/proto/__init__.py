"""Messages generated from the `.proto` files here by `python -m release.protos`; checked by `make check-proto`."""
