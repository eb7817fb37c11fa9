"""The bill of materials of a release."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from release.archives import ROOT
from release.sbom import LOCKS, make_sbom

from podslice import __version__

DIGESTS = {"podslice.whl": "0" * 64}


def test_the_bill_names_what_is_pinned() -> None:
    """Every package of both lock files is there once, with its version and digests; what extras need is optional."""
    bill = json.loads(make_sbom(ROOT, when=0, digests=DIGESTS))
    pinned = {
        match for lock in LOCKS for match in re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / lock).read_text(), re.M)
    }
    found = {(one["name"], one["version"]) for one in bill["components"]}
    assert found == pinned
    assert len(bill["components"]) == len(found)
    assert all(one["externalReferences"][0]["hashes"] for one in bill["components"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[<>=~]", one)[0] for one in project["dependencies"]}
    scopes = {one["name"]: one["scope"] for one in bill["components"]}
    assert {scopes[name] for name in needed} == {"required"}
    assert scopes["grpcio"] == "optional"


def test_the_bill_is_of_this_version() -> None:
    """It describes the archives of the release, and lists its references completely."""
    bill = json.loads(make_sbom(ROOT, when=86400, digests=DIGESTS))
    ours = bill["metadata"]["component"]
    assert (bill["bomFormat"], bill["specVersion"], ours["version"]) == ("CycloneDX", "1.6", __version__)
    assert bill["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    assert ours["externalReferences"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    references = {ours["bom-ref"], *(one["bom-ref"] for one in bill["components"])}
    assert {bill["dependencies"][0]["ref"], *bill["dependencies"][0]["dependsOn"]} == references


def test_the_same_release_has_the_same_bill(tmp_path: Path) -> None:
    """The serial number follows from the content."""
    first = make_sbom(ROOT, when=5, digests=DIGESTS)
    assert make_sbom(ROOT, when=5, digests=DIGESTS) == first
    assert make_sbom(ROOT, when=5, digests={"other.whl": "1" * 64}) != first
