"""`make manifests`: deploy/manifests, which are what Helm makes of the chart, without what only a chart needs.

With `--check` only say whether they are current. Needs Helm (`python -m e2e.clienttools`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any, NamedTuple

import yaml
from e2e.clienttools import HOW, find

from release.archives import ReleaseError
from release.values import FOLDER

MANIFESTS = FOLDER.parents[1] / "manifests"
_DIGEST = "sha256:" + "0" * 64
_PLACE = "sha256:PUT-THE-DIGEST-OF-YOUR-IMAGE-HERE"
_KUBERNETES = "v1.36.2"
_ONLY_IN_A_CHART = re.compile(
    r"^ *(?:helm\.sh/chart|app\.kubernetes\.io/managed-by|checksum/config): .*\n|^# Source: .*\n", re.MULTILINE
)
_NOTHING_LEFT = re.compile(r"^( *)annotations:\n(?!\1 )", re.MULTILINE)
_SCHEDULER: dict[str, Any] = {
    "cluster": {
        "enabled": True,
        "schedulerImage": f"registry.k8s.io/kube-scheduler:{_KUBERNETES}",
        "certificates": "secret",
        "caConfigMap": "podslice-cluster-ca",
    }
}


class Manifest(NamedTuple):
    """A file: the templates it is made of, the values for them, and the text before."""

    templates: tuple[str, ...]
    values: dict[str, Any]
    head: str


_NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: podslice
  labels:
    pod-security.kubernetes.io/enforce: privileged
"""
FILES = {
    "podslice.yaml": Manifest(
        ("agent-rights", "agents"),
        {},
        f"""\
# The node agent as a DaemonSet. Put the digest of the image you built (deploy/container/Containerfile) where it says
# so: a tag is whatever it points to today.
{_NAMESPACE}---
""",
    ),
    "agents-with-scheduler.yaml": Manifest(
        ("agents",),
        _SCHEDULER,
        """\
# In place of the same two objects of podslice.yaml: agents that report to the service of scheduler.yaml, with a token
# for it and the authority behind its certificate, the ConfigMap podslice-cluster-ca (docs/cluster-scheduler.md).
""",
    ),
    "scheduler.yaml": Manifest(
        ("cluster-rights", "cluster"),
        _SCHEDULER,
        """\
# A second scheduler with podslice cluster beside it (docs/cluster-scheduler.md). Pods choose it by schedulerName. Put
# the digest of your image where it says so, and make the Secret podslice-cluster-tls first.
""",
    ),
    "nodestate.yaml": Manifest(("nodestate",), _SCHEDULER, (FOLDER / "crds/nodestates.yaml").read_text() + "---\n"),
    "own-node-only.yaml": Manifest(("ownnode",), {}, ""),
    "kubectl.yaml": Manifest(("kubectl",), {}, ""),
    "dra.yaml": Manifest(("dra",), {"dra": {"enabled": True}}, ""),
    "noderesourcetopology.yaml": Manifest(("noderesourcetopology",), {"agent": {"nodeResourceTopology": "own"}}, ""),
}


def render(manifest: Manifest) -> str:
    """Return the text of a file. Raises `ReleaseError` without Helm, and with its words where it fails."""
    helm = find("helm")
    if helm is None:
        raise ReleaseError(HOW)
    values = {**manifest.values, "image": {"digest": _DIGEST}}
    pieces = []
    for name in manifest.templates:
        command = [
            str(helm),
            "template",
            "podslice",
            str(FOLDER),
            "--namespace=podslice",
            f"--kube-version={_KUBERNETES}",
        ]
        command += [f"--show-only=templates/{name}.yaml", "--values=-"]
        ran = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True)
        if ran.returncode:
            raise ReleaseError(ran.stderr.strip())
        pieces.append(ran.stdout)
    text = _NOTHING_LEFT.sub("", _ONLY_IN_A_CHART.sub("", "".join(pieces))).replace(_DIGEST, _PLACE)
    documents = [one.strip() for one in re.split(r"^---\n", text, flags=re.MULTILINE) if one.strip()]
    return manifest.head + "\n---\n".join(documents) + "\n"


def main() -> None:
    try:
        texts = {MANIFESTS / name: render(manifest) for name, manifest in FILES.items()}
    except ReleaseError as error:
        sys.exit(f"manifests: {error}")
    wrong = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    if "--check" not in sys.argv[1:]:
        for path in wrong:
            path.write_text(texts[path])
    elif wrong:
        sys.exit(f"not current: {', '.join(path.name for path in wrong)} (make manifests)")


if __name__ == "__main__":
    main()
