"""`make docs`: build the site of the documents into build/site, one folder for each minor version.

Folders of former versions stay, and pages offer all versions that `versions.json` lists. Exit codes: 0 all well, 1 not,
2 mkdocs is missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from podslice.version import __version__

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers")
REDIRECT = """<!doctype html>
<meta charset="utf-8"><title>podslice</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">podslice {version}</a>
"""


def minor(version: str) -> str:
    """Return the version that a folder is named after, such as 0.9 of 0.9.3."""
    return ".".join(version.split(".")[:2])


def build(site: Path, version: str) -> int:
    """Build the pages of this checkout as `version` and list all versions that are in `site`. Returns an exit code."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean", "--site-dir"]
    built = subprocess.run([*command, str(site / version)], cwd=ROOT, check=False)
    if built.returncode == 0:
        list_versions(site)
    return built.returncode


def list_versions(site: Path) -> None:
    """Write versions.json, the newest version first, and a first page that leads to the newest."""
    found = sorted((path.parent.name for path in site.glob("*/index.html")), key=_order, reverse=True)
    entries = [{"version": name, "title": name, "aliases": ["latest"] if name == found[0] else []} for name in found]
    (site / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(version=found[0]), encoding="utf-8")


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in name.split("."))


def main() -> int:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(
            f"site: {', '.join(missing)} missing; install what release/docs.lock names, or: make docs", file=sys.stderr
        )
        return 2
    version = minor(__version__)
    code = build(SITE, version)
    if code == 0:
        print(f"{SITE / version / 'index.html'}; to search as well: python -m http.server -d {SITE}")
    return code


if __name__ == "__main__":
    sys.exit(main())
