"""CEL selectors of devices: the expression language of the API server with its types Quantity and Semver
(cluster-integration A.1.3).

The language itself is the Common Expression Language project's own runtime (the extra `claims`); this module adds what
Kubernetes adds to it.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from podslice.dra.allocation.pools import OfferedDevice
from podslice.dra.allocation.selectors import SelectorError
from podslice.extras import install_extra
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

_STRINGS = re.compile(r"""[rR]?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_PLACE = re.compile(r"^INVALID_ARGUMENT: ERROR: <input>:1:([0-9]+): ")
_MEMBERS = re.compile(r"(?<![\w.])device\s*\.\s*\??([A-Za-z_]\w*)")
_FIELDS = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_NANO = 10**9
_SEMVER = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?\Z"
)


class CELSelectors:
    """Evaluates selectors, and compiles each expression once. Raises `InputError` where the runtime of CEL is not
    installed."""

    def __init__(self) -> None:
        self._language = _language()
        self._compiled: dict[str, Any] = {}

    def check(self, expression: str) -> str:
        """Return the error of an expression, in the runtime's words; empty for a valid one."""
        try:
            kind = self._language.env.compile(expression).return_type().name()
        except RuntimeError as error:
            return _compiler_message(error)
        # The runtime types `device` as a map and would find a wrong field only when it evaluates; the API server
        # refuses it.
        unknown = next((name for name in _MEMBERS.findall(_STRINGS.sub("", expression)) if name not in _FIELDS), None)
        if unknown is not None:
            return f"undefined field '{unknown}': a device has {', '.join(_FIELDS)}"
        return "" if kind in ("BOOL", "bool", "DYN", "dyn") else f"must evaluate to bool, is {kind.lower()}"

    def matches(self, expression: str, offered: OfferedDevice) -> bool:
        """Whether the expression holds for the device. Raises `SelectorError`."""
        compiled = self._compiled.get(expression)
        if compiled is None:
            try:
                compiled = self._language.env.compile(expression)
            except RuntimeError as error:
                raise SelectorError(expression, offered.id[2], _compiler_message(error)) from None
            self._compiled[expression] = compiled
        try:
            value = compiled.eval(data={"device": self._device(expression, offered)}).value()
        except RuntimeError as error:  # it ran too long, for instance
            raise SelectorError(expression, offered.id[2], _compiler_message(error)) from None
        # An expression of type dyn compiles, and may turn out to be something else.
        if not isinstance(value, bool):
            problem = f"is not a truth value but {value}" if not isinstance(value, Exception) else str(value)
            raise SelectorError(expression, offered.id[2], problem)
        return value

    def _device(self, expression: str, offered: OfferedDevice) -> dict[str, Any]:
        """Return the variable `device`.

        A domain that the device does not have is an empty map in Kubernetes. Any text in the expression may be such a
        domain, so each gets one.
        """
        attributes: dict[str, dict[str, Any]] = {}
        capacity: dict[str, dict[str, Any]] = {}
        for text in _STRINGS.findall(expression):
            # An index into a missing key would be an error here, and end the scheduling of the pod.
            attributes[text[1:-1]] = {}
            capacity[text[1:-1]] = {}
        for name, (kind, value) in offered.attributes.items():
            domain, _, key = name.rpartition("/")
            read = self._language.version if kind == "version" else _as_it_is
            attributes.setdefault(domain, {})[key] = [*map(read, value)] if isinstance(value, tuple) else read(value)
        for name, amount in offered.capacity.items():
            domain, _, key = name.rpartition("/")
            capacity.setdefault(domain, {})[key] = self._language.amount(amount.value)
        return {
            "driver": offered.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": offered.shared,
        }


def _as_it_is(value: Any) -> Any:
    return value


class _Language(NamedTuple):
    env: Any
    amount: Callable[[int], Any]
    version: Callable[[Any], Any]


@functools.cache
def _language() -> _Language:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise InputError("selectors of devices need the CEL runtime", remedy=install_extra("claims")) from None
    # Both types are protobuf messages with one text field: the form in which the runtime passes values to functions.
    file = descriptor_pb2.FileDescriptorProto(name="podslice/cel.proto", package="kubernetes", syntax="proto3")
    for name in ("Quantity", "Semver"):
        file.message_type.add(name=name).field.add(name="text", number=1, type=9, label=1)
    pool = descriptor_pool.Default()
    pool.Add(file)
    quantity, semver = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kubernetes.{name}"))
        for name in ("Quantity", "Semver")
    )
    text, truth, whole, number = cel.Type.STRING, cel.Type.BOOL, cel.Type.INT, cel.Type.DOUBLE
    quantity_type, semver_type = cel.Type("kubernetes.Quantity"), cel.Type("kubernetes.Semver")
    functions: dict[str, list[Any]] = {}

    def add(
        name: str, parameters: list[Any], result: Any, body: Callable[..., Any] | None, *, member: bool = True
    ) -> None:
        identity = f"{name}_{'_'.join(one.name() for one in parameters)}".replace(".", "_").lower()
        one = cel.Overload(identity, result, parameters, is_member=member, impl=body)
        functions.setdefault(name, []).append(one)

    def amount(nano: int) -> Any:
        return quantity(text=str(nano))

    def version(value: Any) -> Any:
        return semver(text=_strip_build(value))

    add("quantity", [text], quantity_type, lambda one: amount(_parse_quantity(one).nano), member=False)
    add("isQuantity", [text], truth, _is_quantity, member=False)
    add("sign", [quantity_type], whole, lambda one: _compare(int(one.text), 0))
    add("isInteger", [quantity_type], truth, lambda one: _whole_number(one) is not None)
    add("asInteger", [quantity_type], whole, _as_integer)
    add("asApproximateFloat", [quantity_type], number, lambda one: int(one.text) / _NANO)
    for name, sign in (("add", 1), ("sub", -1)):
        add(name, [quantity_type, quantity_type], quantity_type, _make_sum(amount, sign))
        add(name, [quantity_type, whole], quantity_type, _make_sum(amount, sign))
    for name, result, body in (
        ("isGreaterThan", truth, lambda one, other: _compare_values(one, other) > 0),
        ("isLessThan", truth, lambda one, other: _compare_values(one, other) < 0),
        ("compareTo", whole, _compare_values),
    ):  # the runtime knows messages only as such, so that one body serves both types
        add(name, [quantity_type, quantity_type], result, body)
        add(name, [semver_type, semver_type], result, None)
    add("semver", [text], semver_type, version, member=False)
    add("isSemver", [text], truth, lambda one: _SEMVER.match(one) is not None, member=False)
    for place, name in enumerate(("major", "minor", "patch")):
        add(name, [semver_type], whole, lambda one, place=place: _precedence(one.text)[0][place])
    # KEP-5491: whether a value, or a list of them, has this one.
    for kind in (whole, truth, text, semver_type):
        add("includes", [kind, kind], truth, operator.eq)
        add("includes", [cel.Type.List(kind), kind], truth, operator.contains)
    env = cel.NewEnv(
        pool,
        variables={"device": cel.Type.Map(text, cel.Type.DYN)},
        extensions=[ext_strings.ExtStrings(), ext_bindings.ExtBindings(), ext_optional.ExtOptional()],
        functions=[cel.FunctionDecl(name, overloads) for name, overloads in functions.items()],
    )
    return _Language(env, amount, version)


def _compiler_message(error: Exception) -> str:
    """Return the compiler's message, with the column."""
    return _PLACE.sub(r"column \1: ", str(error).splitlines()[0])


def _parse_quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise ValueError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _whole_number(one: Any) -> int | None:
    whole, rest = divmod(int(one.text), _NANO)
    return None if rest or not -(1 << 63) <= whole < 1 << 63 else whole


def _as_integer(one: Any) -> int:
    whole = _whole_number(one)
    if whole is None:
        raise ValueError("cannot convert value to integer")
    return whole


def _make_sum(amount: Callable[[int], Any], sign: int) -> Callable[[Any, Any], Any]:
    def total(one: Any, other: Any) -> Any:
        return amount(int(one.text) + sign * (other * _NANO if isinstance(other, int) else int(other.text)))

    return total


def _compare_values(one: Any, other: Any) -> int:
    key: Callable[[str], Any] = int if one.DESCRIPTOR.name == "Quantity" else _precedence
    return _compare(key(one.text), key(other.text))


def _compare(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _strip_build(text: str) -> str:
    """Return a version without its build metadata, which does not count in comparisons. Raises `ValueError`."""
    if _SEMVER.match(text) is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return text.partition("+")[0]


def _precedence(text: str) -> tuple[tuple[int, int, int], tuple[Any, ...]]:
    """Return a sort key in the order of semver 2.0.0: numbers before words, a release after its pre-releases."""
    core, _, before = text.partition("-")
    major, minor, patch = map(int, core.split("."))
    if not before:
        return (major, minor, patch), ((2,),)
    words = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in before.split("."))
    return (major, minor, patch), words
