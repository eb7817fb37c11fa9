"""What the comments of the chart's values.yaml say, as defaults, as descriptions and as the page README.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "deploy/helm/podslice"
_KEY = re.compile(r"(?P<indent> *)(?P<name>[A-Za-z]\w*):(?: |$)")
_GROUPS = ("image", "monitoring", "cluster", "dra")
"""Values whose own values are described one by one; of any other the comment says it all."""
_HEAD = """\
# Helm chart podslice

The node agent of podslice, and a scheduler that knows what nodes will say. How to install, upgrade and remove it:
[docs/agent.md](../../../docs/agent.md), [docs/cluster-scheduler.md](../../../docs/cluster-scheduler.md). This page is
made of `values.yaml` by `python -m release.schemas`. Helm refuses values that it does not know.

| value | default | |
|---|---|---|
"""


def read_defaults() -> dict[str, Any]:
    """Return the values that the chart has by itself."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text(encoding="utf-8"))
    return found


def read_descriptions() -> dict[str, str]:
    """Return the comment above each value, by its path (`cluster.plan`), lines joined."""
    found: dict[str, str] = {}
    comment: list[str] = []
    group = ""
    for line in (FOLDER / "values.yaml").read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("# "):
            comment.append(line.strip()[2:])
            continue
        key = _KEY.match(line)
        if key and not key["indent"]:
            group = key["name"]
            found[group] = " ".join(comment)
        elif key and len(key["indent"]) == 2 and group in _GROUPS:
            found[f"{group}.{key['name']}"] = " ".join(comment)
        comment = []
    return found


def readme_text() -> str:
    """Return the table of all values as README.md holds it."""
    defaults, rows = read_defaults(), []
    for path, text in read_descriptions().items():
        group, _, name = path.partition(".")
        value = defaults[group][name] if name else defaults[group]
        shown = "" if not name and group in _GROUPS else f"`{json.dumps(value)}`"
        if group == "agent":
            shown = "below"
        rows.append(f"| `{path}` | {shown} | {text.replace('|', chr(92) + '|')} |\n")
    agent = yaml.safe_dump({"agent": defaults["agent"]}, sort_keys=False)
    return f"{_HEAD}{''.join(rows)}\n```yaml\n{agent}```\n"


def defaults_text() -> str:
    """Return the defaults as the templates read them, for values of an older chart that lack some."""
    return json.dumps(read_defaults(), indent=1) + "\n"
