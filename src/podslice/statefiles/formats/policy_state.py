"""`podslice_policy_state`: what podslice remembers beside the managers' files, for nodes with a PodslicePolicy.

    {"data":"{\\"version\\":1,\\"bootId\\":\\"\\",\\"originals\\":{\\"u1\\":{\\"c\\":\\"2-5\\"}}}","checksum":3053661560}

`originals` are the CPUs promised to containers at their admission, where they have more now; `order` the CPUs in the
order in which they came, where that is not the promised ones and then the others, both ascending. The managers' files
always win: what contradicts them is dropped. A kubelet does not know this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podslice.core.state.model import CPUState
from podslice.core.values.cpuset import Bits, CPUSetError, bits_of, format_bits, iter_bits, parse_bits
from podslice.statefiles.formats.checkpoint_data import data_checksum, decode_data
from podslice.statefiles.go.gojson import CORRUPT, CheckpointError, dump_string

VERSION = 1
Loans = dict[str, dict[str, tuple[int, ...]]]
"""CPUs beyond the promised ones, by pod and container, in the order in which they came."""


class _Content(msgspec.Struct, rename="camel"):
    version: int
    boot_id: str = ""
    originals: dict[str, dict[str, str]] = {}
    order: dict[str, dict[str, list[int]]] = {}


def encode(state: CPUState) -> bytes:
    """The file for this state."""
    content: dict[str, Any] = {"version": VERSION, "bootId": ""}
    originals, order = {}, {}
    for uid, loans in sorted(state.loans.items()):
        promised = {name: state.promised(uid, name) for name in sorted(loans)}
        originals[uid] = {name: format_bits(cpus) for name, cpus in promised.items()}
        mixed = {name: [*iter_bits(cpus), *loans[name]] for name, cpus in promised.items() if _mixed(loans[name])}
        if mixed:
            order[uid] = mixed
    content |= {"originals": originals} if originals else {}
    content |= {"order": order} if order else {}
    data = msgspec.json.encode(content).decode()
    return f'{{"data":{dump_string(data)},"checksum":{data_checksum(data)}}}'.encode()


def _mixed(loaned: tuple[int, ...]) -> bool:
    return list(loaned) != sorted(loaned)


def decode(data: bytes) -> _Content:
    """Read a file, checksum included. Raises `CheckpointError`."""
    envelope = decode_data(data)
    if data_checksum(envelope.data) != envelope.stated:
        raise CheckpointError(CORRUPT)
    try:
        content = msgspec.json.decode(envelope.data, type=_Content)
    except msgspec.MsgspecError as error:
        raise CheckpointError(str(error)) from None
    if content.version != VERSION:
        raise CheckpointError(f"version {content.version} is not {VERSION}")
    return content


def loans_in(data: bytes | None, assignments: Mapping[str, Mapping[str, Bits]]) -> Loans:
    """What a file says that these assignments bear out; nothing for a file that is missing or damaged."""
    if data is None:
        return {}
    try:
        content = decode(data)
    except CheckpointError:
        return {}
    loans: Loans = {}
    for uid, name, loaned in _loans(content, assignments):
        loans.setdefault(uid, {})[name] = loaned
    return loans


def _loans(
    content: _Content, assignments: Mapping[str, Mapping[str, Bits]]
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for uid, named in content.originals.items():
        for name, text in named.items():
            held = assignments.get(uid, {}).get(name, 0)
            try:
                promised = parse_bits(text)
            except CPUSetError:
                continue
            if not promised or promised & ~held or promised == held:
                continue
            loaned = tuple(cpu for cpu in content.order.get(uid, {}).get(name, ()) if not promised >> cpu & 1)
            if bits_of(loaned) != held & ~promised or len(set(loaned)) != len(loaned):
                loaned = tuple(iter_bits(held & ~promised))
            yield uid, name, loaned
