"""Hooks of mkdocs: what the site has besides the pages in docs.

The pages are written for a checkout and link to files beside docs. The site gets a copy of each such file below
`project`, and the links lead there. Folders have no page: a link to one becomes plain text. The reference of the Python
names is generated: one page for each subject, with what the docstrings of the public names say.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PROJECT = "project"
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.md")
"""Pages at the top of the checkout that are pages of the site."""
SUBJECTS = {
    "node": ("Nodes and decisions", ("node",)),
    "advice": ("Advice", ("advise",)),
    "pods": ("Pods", ("api",)),
    "configuration": ("Configuration", ("config",)),
    "machines": ("Machines", ("machine", "host")),
    "values": ("Values and errors", ("values", "evidence")),
}
"""Pages of the Python reference, and the packages whose public names they have."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files beside docs, and the generated pages."""
    for name in PAGES:
        files.append(File.generated(config, f"{PROJECT}/{name}", content=(ROOT / name).read_text(encoding="utf-8")))
    for page in [file for file in files if file.is_documentation_page()]:
        for target in _linked_files(page):
            if files.get_file_from_path(site_path(target)) is None:
                files.append(File.generated(config, site_path(target), abs_src_path=str(ROOT / target)))
    for name, content in references().items():
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turn links that are right in the checkout into links of the site. Pages for developers come last in a search.

    A link whose text is the name of a page gets the page's title of the navigation. A bar in code of a table has no
    backslash here, other than on code hosts.
    """
    if page.file.src_uri.startswith(("development/", f"{PROJECT}/")):
        page.meta.setdefault("search", {"boost": 0.2})
    titles = dict(_titles(config.nav))
    parts = _CODE.split(markdown)
    for at, part in enumerate(parts):
        if not part.startswith("`"):
            parts[at] = _LINK.sub(lambda link: _mend(link, page.file, titles), part)
        elif not part.startswith("```"):
            parts[at] = part.replace("\\|", "|")
    return "".join(parts)


def _titles(nav: Any) -> Iterator[tuple[str, str]]:
    """Yield the pages of a navigation that have a title there, with it."""
    for entry in nav if isinstance(nav, list) else ():
        for title, there in entry.items() if isinstance(entry, dict) else ():
            if isinstance(there, str):
                yield there, title
            else:
                yield from _titles(there)


def checkout_path(file: File, link: str) -> str:
    """Return the path in the checkout to which a link of this page leads."""
    folder = posixpath.dirname(file.src_uri)
    inside = folder == PROJECT or folder.startswith(f"{PROJECT}/")
    base = folder.removeprefix(PROJECT).strip("/") if inside else posixpath.join("docs", folder)
    return posixpath.normpath(posixpath.join(base, link))


def site_path(path: str) -> str:
    """Return where a file of the checkout is in the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{PROJECT}/{path}"


def _linked_files(page: File) -> list[str]:
    text = "".join(part for part in _CODE.split(page.content_string) if not part.startswith("`"))
    found = {checkout_path(page, link[3]) for link in _LINK.finditer(text) if "://" not in link[3]}
    return sorted(one for one in found if not one.startswith("docs/") and (ROOT / one).is_file())


def _mend(link: re.Match[str], file: File, titles: dict[str, str]) -> str:
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    path = checkout_path(file, target)
    if (ROOT / path).is_dir():
        return text
    there = site_path(path)
    if text in (target, posixpath.basename(target)):
        text = titles.get(there, text)
    return f"{image}[{text}]({posixpath.relpath(there, posixpath.dirname(file.src_uri) or '.')}{anchor})"


def references() -> dict[str, str]:
    """Return the pages of the Python reference by name."""
    homes = _homes(ROOT / "src" / "podslice" / "__init__.py")
    pages = {
        name: _reference(title, "podslice", [home for home in homes if home.split(".")[1] in rooms])
        for name, (title, rooms) in SUBJECTS.items()
    }
    plugins = _homes(ROOT / "src" / "podslice" / "plugins" / "__init__.py")
    return {**pages, "plugins": _reference("Plugins", "podslice.plugins", plugins)}


def _homes(module: Path) -> list[str]:
    """Return the public names of a module as full names in the modules that define them."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    public = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    homes = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    return [homes[name] for name in public]


def _reference(title: str, package: str, homes: list[str]) -> str:
    ordered = sorted(homes, key=lambda home: home.rpartition(".")[2].lower())
    return "\n\n".join([f"# {title}", f"Import these names from `{package}`.", *(f"::: {home}" for home in ordered)])
