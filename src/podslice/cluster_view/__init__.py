"""Put questions to a running `podslice cluster`, and print its answers."""
