"""Objects of a file, with the places where they stand, and configurations that stand in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.config.carriers.layer import API_VERSION, KIND, Configuration, FieldPlace, Layer, join_path
from podslice.reading.lists import fill_items, is_list
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

_GROUP = "kubelet.config.k8s.io"


class Held(NamedTuple):
    """An object of a file and its place."""

    data: dict[str, Any]
    place: FieldPlace

    @property
    def kind(self) -> str:
        """The object's kind; empty where it has none."""
        kind = self.data.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def group(self) -> str:
        """The API group: `apps` of `apps/v1`, empty for the core group."""
        version = self.data.get("apiVersion")
        return version.rpartition("/")[0] if isinstance(version, str) else ""

    @property
    def name(self) -> str:
        """The name in messages: kind and name, without a name the kind."""
        metadata = self.data.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        named = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
        return f"{self.kind} {named}".strip()

    def mapping(self, path: str) -> dict[str, Any] | None:
        """Return the object at a dotted path; None where there is none."""
        value = self.value(path)
        return value if isinstance(value, dict) else None

    def value(self, path: str) -> Any:
        """Return the value at a dotted path; None where there is none."""
        value: Any = self.data
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        return value

    def entries(self, path: str) -> list[Any]:
        """Return the list at a dotted path; empty where there is none."""
        value = self.value(path)
        return value if isinstance(value, list) else []

    def at(self, path: str) -> FieldPlace:
        """Return the place of a path in the object."""
        return self.place._replace(path=join_path(self.place.path, path))


def key_step(key: object) -> str:
    """Return a key as a step of a path; one with dots stands in brackets."""
    text = str(key)
    return f"[{text}]" if "." in text or "[" in text else text


def iter_held(documents: list[Any]) -> Iterator[Held]:
    """Yield the objects of a file, those inside Lists too."""
    for number, document in enumerate(documents):
        yield from _iter_items(document, FieldPlace(number))


def _iter_items(document: Any, place: FieldPlace) -> Iterator[Held]:
    if not isinstance(document, dict):
        return
    if not is_list(document):
        yield Held(document, place)
        return
    for at, item in enumerate(fill_items(document)):
        yield from _iter_items(item, place._replace(path=join_path(place.path, f"items[{at}]")))


def is_configuration(data: Any) -> bool:
    """Whether plain data is a KubeletConfiguration."""
    # A JSON patch names the kind that it patches, and has no fields of it.
    if not isinstance(data, dict) or data.get("kind") != KIND or "patch" in data:
        return False
    version = data.get("apiVersion")
    return version is None or (isinstance(version, str) and version.startswith(_GROUP))


def find_embedded(held: Held, *, lenient: bool = False) -> Iterator[Configuration]:
    """Yield the KubeletConfigurations inside an object: as objects, and as text of YAML or JSON. `lenient` passes over
    texts that cannot be read, as templates. Raises `InputError`."""
    pending: list[tuple[str, Any]] = [("", held.data)]
    while pending:
        where, value = pending.pop()
        if isinstance(value, str):
            try:
                yield from _in_text(held, where, value)
            except InputError:
                if not lenient:
                    raise
        elif is_configuration(value) and where:
            origin = f"{held.name or 'the document'}, {where}"
            yield Configuration(origin, (Layer({"apiVersion": API_VERSION, **value}, origin, held.at(where)),))
        elif isinstance(value, dict):
            pending += [(join_path(where, key_step(key)), one) for key, one in reversed(value.items())]
        elif isinstance(value, list):
            pending += [(f"{where}[{at}]", one) for at, one in reversed(list(enumerate(value)))]


def _in_text(held: Held, path: str, text: str) -> Iterator[Configuration]:
    # A script may write a configuration, which only running it shows.
    if KIND not in text or text.startswith("#!"):
        return
    try:
        documents = load_documents(text)
    except InputError as error:
        raise error.at(path=path) from None
    for number, data in enumerate(documents):
        if is_configuration(data):
            yield text_configuration(data, text, f"{held.name or 'the document'}, {path}", held.at(path), number)


def text_configuration(
    data: Mapping[str, Any], text: str, origin: str, place: FieldPlace, number: int = 0
) -> Configuration:
    """Return the configuration that a text inside an object holds as its document `number`."""
    within = place._replace(text=text, inner=number)
    # Patches and templates may leave the version to the program that applies them.
    fields = {"apiVersion": API_VERSION, **data}
    return Configuration(origin, (Layer(fields, origin, within, in_order=text.lstrip()[:1] == "{"),))
