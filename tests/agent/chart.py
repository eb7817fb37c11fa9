"""Renders the chart's templates as far as they go: the few Helm constructs they use, and an error for any other."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "podslice"
_ACTION = re.compile(r"(?P<trim>\s*)\{\{(?P<dash>-?)\s*(?P<code>.*?)\s*(?P<end>-?)\}\}", re.DOTALL)


def render(name: str, namespace: str = "podslice", **values: Any) -> dict[str, Any]:
    """A template as Helm would send it to the API server, with `values` over those of values.yaml."""
    return dict(yaml.safe_load(Renderer(namespace, values).text(f"{name}.yaml")))


def merged(defaults: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Values over defaults as Helm puts them: maps are merged, null takes a key away, all else replaces."""
    result = dict(defaults)
    for name, value in values.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result


def documents(namespace: str = "podslice", **values: Any) -> list[dict[str, Any]]:
    """Everything of the chart as Helm would send it to the API server."""
    renderer = Renderer(namespace, values)
    texts = [renderer.text(path.name) for path in sorted((CHART / "templates").glob("*.yaml"))]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


class Renderer:
    def __init__(self, namespace: str, values: dict[str, Any]) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        defaults = yaml.safe_load((CHART / "values.yaml").read_text())
        named = {"AppVersion": chart["appVersion"], "Name": chart["name"]}
        self._root = {"Release": {"Namespace": namespace}, "Values": merged(defaults, values), "Chart": named}

    def text(self, name: str) -> str:
        source = (CHART / "templates" / name).read_text()
        pieces: list[tuple[str, str]] = []
        position = 0
        for match in _ACTION.finditer(source):
            assert not match["end"], "trimming to the right is not rendered here"
            pieces.append(("text", source[position : match.start()] + ("" if match["dash"] else match["trim"])))
            pieces.append(("code", match["code"]))
            position = match.end()
        pieces.append(("text", source[position:]))
        done, _ = self._block(pieces, 0, self._root, shown=True)
        return done

    def _block(self, pieces: list[tuple[str, str]], at: int, dot: Any, *, shown: bool) -> tuple[str, int]:
        out = ""
        while at < len(pieces):
            kind, piece = pieces[at]
            at += 1
            if kind == "text":
                out += piece
            elif piece in ("end", "else"):
                break
            elif piece.startswith(("with ", "if ")):
                word, _, expression = piece.partition(" ")
                value = self._value(expression, dot) if shown else None
                inner, at = self._block(pieces, at, value if word == "with" and value else dot, shown=bool(value))
                out += inner
                if pieces[at - 1][1] == "else":
                    inner, at = self._block(pieces, at, dot, shown=shown and not value)
                    out += inner
            elif piece.startswith("range "):
                items = self._value(piece.removeprefix("range "), dot) if shown else []
                start = at
                _, at = self._block(pieces, start, dot, shown=False)
                out += "".join(self._block(pieces, start, item, shown=True)[0] for item in items)
            elif shown:
                value = self._value(piece, dot)
                out += str(value).lower() if isinstance(value, bool) else str(value)
        return (out if shown else ""), at

    def _value(self, expression: str, dot: Any) -> Any:
        first, *pipes = [part.strip() for part in expression.split("|")]
        value = self._term(first, dot)
        for pipe in pipes:
            name, _, argument = pipe.partition(" ")
            if name == "nindent":
                indent = "\n" + " " * int(argument)
                value = indent + str(value).replace("\n", indent)
            elif name == "default":
                value = value or self._term(argument, dot)
            elif name == "sha256sum":
                value = hashlib.sha256(str(value).encode()).hexdigest()
            else:
                raise AssertionError(f"unknown function {name}")
        return value

    def _term(self, term: str, dot: Any) -> Any:
        if term.startswith("toYaml "):
            return yaml.safe_dump(self._term(term.removeprefix("toYaml "), dot), sort_keys=False).strip()
        if term.startswith("not "):
            return not self._term(term.removeprefix("not "), dot)
        if term.startswith("ne "):
            left, right = term.removeprefix("ne ").split(" ")
            return self._term(left, dot) != self._term(right, dot)
        required = re.fullmatch(r'required "([^"]+)" (\S+)', term)
        if required:
            return self._term(required[2], dot) or pytest.fail(required[1])
        included = re.fullmatch(r'include \(print \$\.Template\.BasePath "/([a-z.]+)"\) \.', term)
        if included:
            return self.text(included[1])
        if term == 'include "podslice.policies" .':
            return "true" if self._root["Values"]["admissionPolicies"] else ""
        if term.startswith('"'):
            return term.strip('"')
        if term == ".":
            return dot
        if term.startswith("$.Files.Get "):
            return (CHART / term.removeprefix("$.Files.Get ").strip('"')).read_text().rstrip("\n")
        names = term.removeprefix("$").removeprefix(".").split(".")
        value = self._root if term.startswith("$") or names[0] in self._root else dot
        for name in names:
            value = value.get(name)
        return value
