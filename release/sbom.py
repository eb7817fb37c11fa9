"""The software bill of materials of a release, as CycloneDX 1.6: podslice, and the dependencies that lock files pin,
with the digests that pip checks. The same sources give the same bytes.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from podslice.version import __version__

LOCKS = ("release/run.lock", "deploy/container/requirements.lock")
"""The first has what everybody installs, the second also what the agent and the cluster service need."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562: of URLs


def make_sbom(root: Path, *, when: int, digests: dict[str, str]) -> str:
    """Return the document as JSON text. `when`: the time of the release in Unix seconds; `digests`: SHA-256 of the
    release's archives by name."""
    required: dict[str, dict[str, Any]] = {}
    optional: dict[str, dict[str, Any]] = {}
    for lock, found in zip(LOCKS, (required, optional), strict=True):
        found |= _components((root / lock).read_text(encoding="utf-8"))
    for purl, one in optional.items():
        one["scope"] = "required" if purl in required else "optional"
    components = [one for _, one in sorted({**required, **optional}.items())]
    ours = f"pkg:pypi/podslice@{__version__}"
    content = json.dumps([components, digests], sort_keys=True)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": "podslice",
                "version": __version__,
                "purl": ours,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "externalReferences": [
                    {"type": "distribution", "url": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
                    for name, digest in sorted(digests.items())
                ],
            },
        },
        "components": components,
        "dependencies": [{"ref": ours, "dependsOn": [one["bom-ref"] for one in components]}],
    }
    return json.dumps(document, indent=1) + "\n"


def _components(lock: str) -> dict[str, dict[str, Any]]:
    """Return the pinned packages of a lock file by package URL, each with the digests of its archives. A package may be
    there twice, for different Pythons."""
    found: dict[str, dict[str, Any]] = {}
    for block in re.split(r"\n(?=\S)", lock):
        pin = _PIN.match(block)
        if pin is None:
            continue
        name, version = pin[1].lower().replace("_", "-"), pin[2]
        purl = f"pkg:pypi/{name}@{version}"
        found[purl] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "scope": "required",
            # One of them is that of the archive which a machine installs.
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{name}/{version}/",
                    "hashes": [{"alg": "SHA-256", "content": digest} for digest in _HASH.findall(block)],
                }
            ],
        }
    return found
