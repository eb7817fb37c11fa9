"""Frames and messages: what goes in comes out, however the bytes are cut, and hostile bytes are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.agent.runtime.ttrpc import (
    LARGEST_BODY,
    LARGEST_SENT,
    Call,
    FrameDecoder,
    Message,
    MessageDecoder,
    RPCError,
    WireError,
    decode_request,
    decode_response,
    encode_frames,
    encode_message,
    encode_request,
    encode_response,
)

PIECES = st.lists(st.integers(min_value=1, max_value=50), max_size=30)
MESSAGES = st.builds(
    Message,
    stream=st.integers(0, 2**32 - 1),
    type=st.integers(0, 255),
    flags=st.integers(0, 255),
    body=st.binary(max_size=200),
)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of the given sizes, the rest as the last one."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(min_size=1, max_size=3 * LARGEST_SENT)), max_size=4), PIECES
)
def test_frames_round_trip(sent: list[tuple[int, bytes]], sizes: list[int]) -> None:
    """Every connection's bytes arrive complete and in order, in frames of at most 4096 bytes."""
    stream = b"".join(encode_frames(connection, data) for connection, data in sent)
    decoder = FrameDecoder()
    received: dict[int, bytes] = {}
    for piece in cut(stream, sizes):
        for connection, payload in decoder.feed(piece):
            assert len(payload) <= LARGEST_SENT
            received[connection] = received.get(connection, b"") + payload
    expected: dict[int, bytes] = {}
    for connection, data in sent:
        expected[connection] = expected.get(connection, b"") + data
    assert received == expected


@given(st.lists(MESSAGES, max_size=5), PIECES)
def test_messages_round_trip(sent: list[Message], sizes: list[int]) -> None:
    """Messages survive any cutting of the stream."""
    decoder = MessageDecoder()
    received = [m for piece in cut(b"".join(map(encode_message, sent)), sizes) for m in decoder.feed(piece)]
    assert received == sent


@given(st.text(max_size=50), st.text(max_size=50), st.binary(max_size=50), st.none() | st.integers(1, 1000))
def test_requests_round_trip(service: str, method: str, payload: bytes, timeout: int | None) -> None:
    """A request is read as it was written."""
    call = Call(service, method, payload, None if timeout is None else float(timeout))
    assert decode_request(encode_request(call)) == call


def test_responses_carry_payload_or_error() -> None:
    """A response with a code is raised, one without gives the payload."""
    assert decode_response(encode_response(b"abc")) == b"abc"
    with pytest.raises(RPCError, match="code 9: no") as caught:
        decode_response(encode_response(b"", 9, "no"))
    assert (caught.value.code, caught.value.message) == (9, "no")


def test_oversized_frame_is_refused_before_it_arrives() -> None:
    """A header that announces too much ends the connection at once instead of filling memory."""
    with pytest.raises(WireError, match="at most 100 allowed"):
        FrameDecoder(100).feed(struct.pack(">II", 1, 101))


def test_oversized_message_is_refused_before_it_arrives() -> None:
    """The same for messages, in both directions."""
    with pytest.raises(WireError, match="at most"):
        MessageDecoder().feed(struct.pack(">IIBB", LARGEST_BODY + 1, 1, 1, 1))
    with pytest.raises(WireError, match="at most"):
        encode_message(Message(1, 1, 1, bytes(LARGEST_BODY + 1)))


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_read(data: bytes) -> None:
    """Arbitrary bytes end in a value or a `WireError`."""
    for decode in (decode_request, decode_response):
        try:
            decode(data)
        except (WireError, RPCError):
            continue
