"""podslice's command line on a live node: `admit` on its state files, `inspect`, `state verify`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from podslice.cli.main import cli
from podslice.node.checkpoints.names import DEVICE_STATE_FILE, place_of
from tools.prediction.kubelet import RealKubelet, cgroup_version
from tools.prediction.model import FILES

Json = dict[str, Any]
_PROFILE = ("--profile", "kubelet-1.36")


class CommandError(Exception):
    """Raised when a command gave no answer."""


class Verdict(NamedTuple):
    """Reason and message of a refusal (empty: admitted), and the CPUs of each container."""

    reason: str
    message: str
    cpus: dict[str, str]


class Before(NamedTuple):
    """A node before a pod arrives: its files, its folders of pods, the pods that the API server lists, and devices."""

    kubelet: RealKubelet
    files: dict[str, bytes]
    folders: list[str]
    pods: list[Json]
    devices: Sequence[Json]

    @classmethod
    def of(cls, kubelet: RealKubelet, pods: list[Json], devices: Sequence[Json]) -> Before:
        folders = [entry.name for entry in (kubelet.folder / "pods").iterdir()]
        files = {name: kubelet.file(place_of(name)) for name in (*FILES, DEVICE_STATE_FILE)}
        return cls(kubelet, files, folders, pods, devices)


class InspectedContainer(NamedTuple):
    """A container's OOM score and the files of its cgroup."""

    score: int
    files: dict[str, str]


class Inspected(NamedTuple):
    """A pod's QoS class, the files of its cgroup, and its containers."""

    qos: str
    pod: dict[str, str]
    containers: dict[str, InspectedContainer]


def admit(before: Before, pod: Json) -> Verdict | None:
    """Run `podslice admit POD --state DIR --pods RUNNING`. None where no kubelet would start on these files."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, content in before.files.items():
            if content:
                (place / name).write_bytes(content)
        (place / "new.json").write_text(json.dumps(_bare(pod)))
        running = place / "running.json"
        running.write_text(json.dumps({"kind": "List", "items": [_with_type(own) for own in before.pods]}))
        for uid in ("", *before.folders):
            (place / "pods" / uid).mkdir(parents=True)
        beside = ["--state", folder, "--pods", str(running)]
        beside += _devices(place, before.devices)
        try:
            answer = _run("admit", str(place / "new.json"), *beside, *_on(before.kubelet), allowed=(0, 1))
        except CommandError as error:
            if "a kubelet would not start with it" in str(error):
                return None
            raise
    decision = json.loads(answer)["pods"][0]
    cpus = {own["name"]: own["cpus"] for own in decision.get("containers", ())}
    return Verdict(decision.get("reason") or "", decision.get("message") or "", cpus)


def inspect(kubelet: RealKubelet, pod: Json, devices: Sequence[Json]) -> Inspected:
    """Run `podslice inspect POD --node cgroup=… --devices …`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "pod.json")
        place.write_text(json.dumps(_bare(pod)))
        beside = ("--node", f"cgroup={cgroup_version()}", *_devices(Path(folder), devices))
        page = json.loads(_run("inspect", str(place), *beside, *_on(kubelet), allowed=(0,)))["items"][0]
    own = next(cgroup for cgroup in page["cgroups"] if cgroup["kind"] == "pod")
    containers = {
        cgroup["owner"]: InspectedContainer(cgroup["oomScoreAdj"], cgroup["files"])
        for cgroup in page["cgroups"]
        if cgroup["kind"] != "pod"
    }
    return Inspected(page["qos"]["qosClass"], own["files"], containers)


def next_start(kubelet: RealKubelet) -> bool:
    """Whether another kubelet would start on the files of this one, by `podslice state verify`."""
    answer = _run(
        "state", "verify", str(kubelet.folder), "--config", str(kubelet.config_file), "--sysfs", str(kubelet.machine),
        "-o", "json", allowed=(0, 1),
    )  # fmt: skip
    return not any("does not start" in file["start"] for file in json.loads(answer)["items"])


def _devices(folder: Path, devices: Sequence[Json]) -> list[str]:
    if not devices:
        return []
    (folder / "devices.json").write_text(json.dumps(list(devices)))
    return ["--devices", str(folder / "devices.json")]


def _on(kubelet: RealKubelet) -> Sequence[str]:
    return ("--config", str(kubelet.config_file), "--sysfs", str(kubelet.machine), *_PROFILE, "-o", "json")


def _run(*arguments: str, allowed: tuple[int, ...]) -> str:
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    failed = done.exception is not None and not isinstance(done.exception, SystemExit)
    if failed or done.exit_code not in allowed:
        raise CommandError(f"podslice {' '.join(arguments)}: exit code {done.exit_code}: {done.output}{done.exception}")
    return done.stdout


def _bare(pod: Json) -> Json:
    return _with_type({key: own for key, own in pod.items() if key != "status"})


def _with_type(pod: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", **pod}
