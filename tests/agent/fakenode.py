"""A node's cgroup and process files as plain files, where the kernel has them."""

from __future__ import annotations

from pathlib import Path


class FakeTree:
    """A cgroup v2 mount below a folder. `add` makes a cgroup; the files are ordinary ones, so a write sticks, and
    `cpuset.cpus.effective` is left out unless given."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        (root / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")

    def add(self, path: str, *, procs: str = "", **files: str) -> Path:
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        content = {"cpuset_cpus": "", "cpuset_mems": "", "cpu_max": "max 100000", "memory_max": "max"} | files
        for name, text in content.items():
            (folder / name.replace("_", ".")).write_text(text + "\n")
        (folder / "cgroup.procs").write_text(procs)
        return folder

    def write(self, path: str, name: str, text: str) -> None:
        """Somebody writes into a file of a cgroup."""
        (self.root / path / name).write_text(text + "\n")

    def text(self, path: str, name: str) -> str:
        return (self.root / path / name).read_text().strip()
