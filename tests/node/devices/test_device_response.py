"""Plugin answers as bytes in the checkpoint (memory-device 2.2, 2.11)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.node.devices.plugin import AllocateResponse, DeviceNode, Mount
from podslice.node.devices.response import ResponseError, decode_response, encode_response

text = st.text(max_size=8)
responses = st.builds(
    AllocateResponse,
    envs=st.dictionaries(text, text, max_size=3),
    mounts=st.lists(st.builds(Mount, text, text, st.booleans()), max_size=3).map(tuple),
    devices=st.lists(st.builds(DeviceNode, text, text, text), max_size=3).map(tuple),
    annotations=st.dictionaries(text, text, max_size=3),
    cdi_devices=st.lists(text, max_size=3).map(tuple),
)


@given(responses)
def test_round_trip(response):
    """A response that was written is read back."""
    assert decode_response(encode_response(response)) == response


def test_wire_format():
    """The bytes are those of the protobuf definition."""
    response = AllocateResponse({"A": "b"}, (Mount("/c", "/h", True),), (), {}, ("v/d=0",))
    assert encode_response(response) == bytes.fromhex(
        "0a06 0a0141 120162 120a 0a022f63 12022f68 1801 2a07 0a05 762f643d30"
    )


def test_unknown_fields_are_skipped():
    """A later API version's fields do not hurt."""
    extra = bytes.fromhex("3801 3a0161 390000000000000000 3d00000000")
    assert decode_response(extra) == AllocateResponse()


@given(st.binary(max_size=40))
def test_any_bytes_are_judged(data):
    """Arbitrary bytes give a response or a typed error."""
    with contextlib.suppress(ResponseError):
        assert isinstance(decode_response(data), AllocateResponse)


@pytest.mark.parametrize("data", ["0a", "0a05", "08", "00", "0b", "ffffffffffffffffffffff01", "0a030a01ff", "0801"])
def test_broken_bytes(data):
    """Truncated or malformed messages are refused."""
    with pytest.raises(ResponseError):
        decode_response(bytes.fromhex(data))
