"""The plugin's answer as bytes: the `AllocResp` of the device checkpoint is a protobuf ContainerAllocateResponse.

Five fields do not pay for a protobuf runtime, and the checkpoint must be readable where no gRPC is installed
(field numbers: memory-device 2.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.node.devices.plugin import AllocateResponse, DeviceNode, Mount
from podslice.values.errors import PodsliceError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {_FIXED64: 8, _FIXED32: 4}


class ResponseError(PodsliceError, ValueError):
    """Raised for bytes that are not a ContainerAllocateResponse."""


def encode_response(response: AllocateResponse) -> bytes:
    """Return the protobuf of a response, maps in byte order of their keys."""
    parts = [_map(1, response.envs)]
    for mount in response.mounts:
        # proto3 omits a false boolean.
        flag = _key(3, _VARINT) + b"\x01" if mount.read_only else b""
        parts.append(_field(2, _text(1, mount.container_path) + _text(2, mount.host_path) + flag))
    for node in response.devices:
        parts.append(_field(3, _text(1, node.container_path) + _text(2, node.host_path) + _text(3, node.permissions)))
    parts.append(_map(4, response.annotations))
    parts += [_field(5, _text(1, name)) for name in response.cdi_devices]
    return b"".join(parts)


def _map(number: int, entries: Mapping[str, str]) -> bytes:
    return b"".join(
        _field(number, _field(1, key.encode()) + _field(2, entries[key].encode())) for key in sorted(entries)
    )


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode()) if text else b""


def _field(number: int, data: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(data)) + data


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    out = bytearray()
    # Seven bits a byte, the lowest first; the high bit says that more follow.
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_response(data: bytes) -> AllocateResponse:
    """Return a response from its protobuf; unknown fields are ignored. Raises `ResponseError`."""
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: list[Mount] = []
    devices: list[DeviceNode] = []
    names: list[str] = []
    for number, value in _fields(data):
        if number in (1, 4):
            entry = _message(value)
            (envs if number == 1 else annotations)[_string(entry, 1)] = _string(entry, 2)
        elif number == 2:
            mount = _message(value)
            mounts.append(Mount(_string(mount, 1), _string(mount, 2), bool(mount.get(3, 0))))
        elif number == 3:
            node = _message(value)
            devices.append(DeviceNode(_string(node, 1), _string(node, 2), _string(node, 3)))
        elif number == 5:
            names.append(_string(_message(value), 1))
    return AllocateResponse(envs, tuple(mounts), tuple(devices), annotations, tuple(names))


def _message(value: int | bytes) -> dict[int, int | bytes]:
    if isinstance(value, int):
        raise ResponseError("a number where a message belongs")
    return dict(_fields(value))


def _string(message: Mapping[int, int | bytes], number: int) -> str:
    """Return a text field, empty where it is missing. Raises `ResponseError`."""
    value = message.get(number, b"")
    if isinstance(value, int):
        raise ResponseError("a number where a text belongs")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ResponseError("text that is not UTF-8") from None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a protobuf message. Raises `ResponseError`."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise ResponseError("field number 0")
        if wire == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            size, position = _read_varint(data, position)
        elif wire in _FIXED_SIZE:
            size = _FIXED_SIZE[wire]
        else:
            raise ResponseError(f"wire type {wire}")
        if position + size > len(data):
            raise ResponseError("the data ends inside a field")
        yield number, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, and the position after it. Raises `ResponseError`."""
    value = 0
    # Ten groups of seven bits hold 64 bits; a longer number is an attack or garbage.
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ResponseError("the data ends inside a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ResponseError("a number of more than ten bytes")
