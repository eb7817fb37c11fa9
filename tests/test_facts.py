"""Facts first, sentences last: nobody decides by the words of a message."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from podslice.config.kubelet import KubeletConfig
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node, with_default_uid
from podslice.values.errors import AdmissionError, RefusalKind, StartError, StartKind
from tests.conftest import make_pod
from tests.source_files import modules_with

SOURCE = Path(__file__).parents[1] / "src" / "podslice"
SENTENCES = {"message", "why", "problem", "detail", "sentence", "remedy", "hint", "remarks", "story"}
"""Attributes that hold what people read."""
CUTS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "find", "index", "count"}
CUTS |= {"replace", "split", "rsplit"}
SEARCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub"}


class Reader(ast.NodeVisitor):
    """Finds where a module looks into a sentence. A name is a sentence when it was made of one in the same function."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.caught: set[str] = set()
        self.named: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self.named = self.named, set()
        self.generic_visit(node)
        self.named = outer

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        outer = self.caught
        self.caught = self.caught | ({node.name} if node.name else set())
        self.generic_visit(node)
        self.caught = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if self.is_sentence(node.value):
            self.named |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def visit_Compare(self, node: ast.Compare) -> None:
        for operator, right in zip(node.ops, node.comparators, strict=True):
            inside = isinstance(operator, ast.In | ast.NotIn) and self.is_sentence(right)
            same = isinstance(operator, ast.Eq | ast.NotEq) and self.is_sentence(node.left) and has_words(right)
            if inside or same:
                self.found.append(ast.unparse(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Attribute):
            cut = called.attr in CUTS and self.is_sentence(called.value) and any(map(has_words, node.args))
            searched = called.attr in SEARCHES and any(map(self.is_sentence, node.args))
            if cut or searched:
                self.found.append(ast.unparse(node))
        self.generic_visit(node)

    def is_sentence(self, node: ast.expr) -> bool:
        """True for the text of an error that was caught, for an attribute that holds a sentence, and for their cuts."""
        if isinstance(node, ast.Name):
            return node.id in self.named
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
            return any(isinstance(argument, ast.Name) and argument.id in self.caught for argument in node.args)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self.is_sentence(node.func.value)
        if isinstance(node, ast.Subscript):
            return self.is_sentence(node.value)
        return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def has_words(node: ast.expr) -> bool:
    """True for a literal text with a letter in it."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and any(map(str.isalpha, node.value))


def looked_into(text: str) -> list[str]:
    reader = Reader()
    reader.visit(ast.parse(textwrap.dedent(text)))
    return reader.found


def kinds() -> Iterator[tuple[str, str]]:
    """The codes of all kinds of refusals and failed starts, by the class."""
    for _, tree in modules_with("RefusalKind", "StartKind"):
        for node in ast.walk(tree):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if named and node.func.id in ("RefusalKind", "StartKind") and isinstance(node.args[0], ast.Constant):
                yield node.func.id, node.args[0].value


@pytest.mark.slow
def test_nobody_searches_a_sentence() -> None:
    """No module finds out from the words of a message what happened."""
    found = {
        str(path.relative_to(SOURCE)): looked_into(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    assert {file: places for file, places in found.items() if places} == {}


@pytest.mark.parametrize(
    "text",
    [
        'code = "fraction" if "not multiple" in refusal.message else "short"',
        "fields = [field for sign, field in FIELDS if sign in error.detail]",
        'start = [one for one in starts if one.why.startswith("a kubelet does not")]',
        'name = problem.message.split(" of Pod ")[0].removeprefix("has ")',
        'stops = verdict.message == "does not start"',
        """
        try:
            f()
        except ValueError as error:
            text = str(error)
            if "quantity" in text:
                g()
        """,
        """
        try:
            f()
        except ValueError as error:
            found = PLACE.search(str(error))
        """,
    ],
)
def test_the_reader_sees(text: str) -> None:
    """Searches as this project once made them, and the like, are found."""
    assert looked_into(text)


@pytest.mark.parametrize(
    "text",
    [
        'fits = "cpu" in pod.requests and error.reason == NOT_ALIGNED',
        'lines = error.message.split("\\n")',
        'told = f"{error.message}; {refusal.why}" if refusal.why else error.message',
        'words = path.read_text().split("memory")',
    ],
)
def test_the_reader_lets_pass(text: str) -> None:
    """Codes may be compared, files read, and sentences joined."""
    assert looked_into(text) == []


@pytest.mark.slow
def test_codes_tell_refusals_apart() -> None:
    """A code of a refusal stands at one kind, but those that several sentences of upstream share by name."""
    counted = Counter(code for name, code in kinds() if name == "RefusalKind")
    assert [code for code, times in counted.items() if times > 1] == []
    assert len(counted) > 20


def test_a_refusal_makes_its_sentences_of_facts() -> None:
    """Reason and message are made of the kind and the facts; braces in a fact are only text."""
    kind = RefusalKind("full", "no {resource}: {free}", "OutOf{resource}")
    error = AdmissionError(kind, resource="x/{y}", free=0, more=1)
    assert (error.refusal.code, error.reason, error.message) == ("full", "OutOfx/{y}", "no x/{y}: 0")
    assert str(error) == error.message


def test_facts_may_have_any_name() -> None:
    """No name of a fact is taken by the errors themselves."""
    assert AdmissionError(RefusalKind("x", "{kind} {self}"), kind=1, self=2).message == "1 2"
    assert StartError("s", StartKind("x", "{stage} {kind}"), stage=1, kind=2).message == "1 2"


def test_an_unexpected_refusal_says_what_was_unexpected() -> None:
    """Where upstream wraps a manager's message, the code and the facts of that manager stay."""
    node = Node(
        from_synthetic("pack:1 numa:1(memory=8GB) core:8 pu:1"),
        KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={}),
        predicates=False,
    )
    refusal = node.kubelet.admit(with_default_uid(make_pod("p", ("c", "8"))))
    assert refusal is not None
    assert (refusal.code, refusal.reason) == ("allocation-failed", "UnexpectedAdmissionError")
    assert {"cause": "not-enough-cpus", "requested": 8, "available": 7}.items() <= refusal.facts.items()
