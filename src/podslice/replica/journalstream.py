"""What both ends of a node's journal stream agree on: its name, and how a dead connection is noticed."""

from __future__ import annotations

from podslice.replica.events import MOST_BYTES

SERVICE = "podslice.cluster.v1alpha1.Journals"
FOLLOW = "Follow"
METHOD = f"/{SERVICE}/{FOLLOW}"
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # gRPC itself would wait a minute for the answer
)
"""For gRPC channels and servers."""
