"""One configuration: a real kubelet and podslice go through the same history, and are compared at every step."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from e2e.controlplane import StatusError

from podslice.machine.devices import inventory_from_data
from podslice.node.checkpoints.names import ACTUATED_STATE_FILE, MEMORY_STATE_FILE
from podslice.values.errors import Refusal, StartError
from tools.judge.chance import often, pick
from tools.judge.kubelets import spare_lists
from tools.judge.pods import PodDrawer, change_pod
from tools.prediction import commands, compare
from tools.prediction.answers import PATIENCE, compare_device_file, compare_pod_resources
from tools.prediction.configurations import Configuration, change_configuration, machine_of
from tools.prediction.creation import compare_creation
from tools.prediction.devicelists import change_list, without_chance
from tools.prediction.kubelet import KubeletEndedError, RealKubelet, cgroup_version
from tools.prediction.model import FILES, Model
from tools.prediction.node import WITH_OVERHEAD, OneNode, is_over, soon
from tools.prediction.notes import Notes
from tools.prediction.plugins import Plugins
from tools.prediction.resizable import ResizableDrawer
from tools.prediction.resizing import Resizing
from tools.prediction.runtime import RUNNING

Json = dict[str, Any]
_PREFIX = "Pod was rejected: "


class Trial:
    """Runs one history, drawn from `r`, on both sides."""

    def __init__(self, node: OneNode, configuration: Configuration, r: Random) -> None:
        self.notes = Notes()
        self.counts = self.notes.counts
        self._node, self._configuration, self._r = node, configuration, r
        self._devices = configuration.devices
        self._inventory = inventory_from_data(list(self._devices))
        self._plugins = Plugins(self._inventory, node.kubelet.folder)
        self._model = Model(node.kubelet.machine, cgroup_version(), self._inventory)
        self._running: dict[str, Json] = {}
        """Pods on the node by name, the oldest first."""
        self._uids: dict[str, str] = {}
        self._crashed: set[str] = set()
        self._created: dict[str, Json] = {}
        """Resources with which containers were created, by the runtime's id."""
        machine = machine_of(configuration.shape)
        self._resizable = ResizableDrawer(r, configuration.shape.cpus) if configuration.resizes else None
        self._drawer = PodDrawer(r, machine, list(configuration.devices), spare_lists(machine, configuration.kubelet))

    def run(self, pods: int) -> None:
        """Run until `pods` pods have been created."""
        with self._plugins:
            self._run(pods)

    def _run(self, pods: int) -> None:
        if not self._start(self._configuration.kubelet):
            self._begin_anew()
        while self.counts["pods"] < pods:
            kinds: list[tuple[float, Callable[[], None]]] = [(10, self._create)]
            if self._running:
                kinds += [(2.5, self._delete), (1, self._crash), (1, self._restart), (0.5, self._restart_without)]
                kinds += [(0.5, self._reconfigure), (12 if self._resizable else 2, self._resize)]
            if self._devices:
                kinds += [(4, self._change_devices)]
            if any(pod["spec"]["restartPolicy"] == "Never" for pod in self._running.values()):
                kinds += [(1.5, self._complete)]
            pick(self._r, *kinds)()
        self.notes.step = "end"
        for pod in self._node.pods():
            name = pod["metadata"]["name"]
            if name in self._running:
                self.notes.same("phase", pod["status"].get("phase"), "Running")
        self._last_start()

    # What happens

    def _start(self, config: Json) -> bool:
        """Start both sides with this configuration on the files of the last kubelet. Returns whether they did."""
        self.counts["starts"] += 1
        kubelet = self._node.kubelet
        real = predicted = ""
        refused: dict[str, Refusal] = {}
        self._now = config
        try:
            kubelet.start(config)
            if self._running:
                kubelet.wait("running pods are admitted again", kubelet.has_readmitted)
            self._plugins.register()
            kubelet.wait("devices are counted", self._devices_counted)
        except KubeletEndedError as error:
            real = str(error)
        try:
            refused = self._model.start(kubelet.config_file, self._running.values(), self._node.runtime.running())
        except StartError as error:
            predicted = error.message
        if real or predicted:
            self.counts["starts refused"] += 1
            same = bool(predicted) and all(part in real for part in predicted.split("; "))
            self.notes.note("start", same, real or "starts", predicted or "starts")
            if not real:
                kubelet.stop()
            return False
        if self._running:
            self._compare_readmission(refused)
        kubelet.keep_house()
        self._compare()
        return True

    def _devices_counted(self) -> bool:
        reported = self._node.allocatable()
        return all(
            reported.get(own.resource) == str(sum(one.healthy for one in own.devices))
            for own in self._inventory.resources
        )

    def _compare_readmission(self, refused: dict[str, Refusal]) -> None:
        """Compare which running pods the kubelet has admitted again."""
        for name in list(self._running):
            self.counts["re-admissions"] += 1
            uid = self._uids[name]
            if uid in refused:
                self.counts["re-admissions refused"] += 1
                if soon(partial(self._is_over, name), PATIENCE):
                    self._same_refusal(name, refused[uid])
                else:
                    self.notes.note(f"{name} is refused", False, "runs on", str(refused[uid].message))
                del self._running[name]
            else:
                self.notes.same(f"{name} phase", self._node.get(name)["status"].get("phase"), "Running")

    def _is_over(self, name: str) -> bool:
        return is_over(self._node.get(name))

    def _create(self) -> None:
        pod = self._draw()
        name = pod["metadata"]["name"]
        self.notes.step = f"create {name}"
        soon(self._folders_are_gone, PATIENCE)
        before = commands.Before.of(self._node.kubelet, self._node.pods(), self._devices)
        self._new_second()
        try:
            stored = self._node.create(pod)
        except StatusError as error:
            self.counts["refused by the API server"] += 1
            if error.code not in (403, 422):
                raise
            return
        self.counts["pods"] += 1
        refusal = self._model.admit(stored)
        found = self._node.wait_for_decision(name)
        failed = found["status"]["phase"] == "Failed"
        self.counts["refused" if failed else "admitted"] += 1
        self._uids[name] = stored["metadata"]["uid"]
        if failed or refusal is not None:
            self._same_refusal(name, refusal)
        else:
            self._running[name] = stored
        verdict = commands.admit(before, stored)
        if verdict is None:
            self.counts["files without a next start"] += 1
        else:
            self.notes.same("podslice admit", self._verdict(found), verdict)
        if not failed and refusal is None:
            compare_creation(self.notes, self._node, self._model, stored, devices=self._devices)
        self._compare()

    def _folders_are_gone(self) -> bool:
        """Whether the folders of removed pods are gone; a kubelet removes them a few seconds after the pod."""
        there = {entry.name for entry in (self._node.kubelet.folder / "pods").iterdir()}
        return there <= {pod["metadata"]["uid"] for pod in self._node.pods()}

    def _delete(self) -> None:
        name = self._any()
        self.notes.step = f"delete {name}"
        self.counts["deletions"] += 1
        self._node.delete(name)
        self._leave(name)
        self._compare()

    def _complete(self) -> None:
        """End a pod whose containers are not restarted."""
        name = self._r.choice([n for n, pod in self._running.items() if pod["spec"]["restartPolicy"] == "Never"])
        self.notes.step = f"complete {name}"
        self.counts["completions"] += 1
        apps = {own["name"] for own in self._running[name]["spec"]["containers"]}
        for container in self._node.runtime.of_pod(self._uids[name]):
            if container.name in apps:
                self._node.runtime.end(container, 0)
        self._node.until(name, is_over)
        self._leave(name, listed=True)
        self._compare()

    def _resize(self) -> None:
        """Request other resources for containers, and the old ones again where they are not granted. A kubelet that
        looks at removed devices may crash (`vanished_devices_crash`)."""
        name = self._any()
        if self._model.holds_vanished(self._uids[name]):
            return
        before = self._running[name]
        self.notes.step = f"resize {name}"
        resizing = Resizing(self.notes, self._node, self._model)
        try:
            decision, found = resizing.resize(before, self._draw_resize(before))
        except StatusError as error:
            self.counts["resizes refused by the API server"] += 1
            if error.code not in (403, 422):
                raise
            return
        if decision.outcome == "Allocated":
            self._running[name] = found
            effects = compare.predict_containers(self._model.effects(self._uids[name]))
            for container in self._node.runtime.of_pod(self._uids[name]):
                if container.name in resizing.updated and container.state == RUNNING:
                    self._created[container.id] = effects[container.name] | resizing.updated[container.name]
        else:
            self.notes.step = f"no resize {name}"
            resizing.resize(before, _resizable(before["spec"]))
        self._compare()

    def _draw_resize(self, pod: Json) -> Json:
        if self._resizable is not None:
            return self._resizable.draw_resize(pod)
        return _resizable({"containers": change_pod(self._r, pod)["spec"]["containers"]})

    def _change_devices(self) -> None:
        """Make a plugin report other devices. Containers keep theirs, even unhealthy and removed ones."""
        resource, self._devices = change_list(self._r, self._devices, self._configuration.shape.nodes)
        self.notes.step = f"another list of {resource}"
        self.counts["changed lists of devices"] += 1
        self._inventory = inventory_from_data(list(self._devices))
        (listed,) = [own for own in self._inventory.resources if own.resource == resource]
        self._plugins.change(listed)
        self._node.kubelet.wait("devices are counted", self._devices_counted)
        self._model.change_devices(self._inventory, resource)
        self._compare()

    def _crash(self) -> None:
        """End a container, which is then restarted."""
        name = self._any()
        pod = self._running[name]
        running = [own for own in self._node.runtime.of_pod(self._uids[name]) if own.state == RUNNING]
        if pod["spec"]["restartPolicy"] == "Never" or name in self._crashed or not running:
            return
        container = self._r.choice(running)
        self.notes.step = f"crash {name}/{container.name}"
        self.counts["crashes"] += 1
        self._crashed.add(name)
        self._node.runtime.end(container, 1)
        self._node.until(name, lambda found: _restarts(found, container.name) > 0)
        self._model.restart_container(self._uids[name], container.name)
        self._compare()

    def _restart(self) -> None:
        self.notes.step = "restart"
        self.counts["restarts"] += 1
        self._node.kubelet.stop(kill=often(self._r, 0.5))
        if not self._start(self._now):
            self._begin_anew()

    def _restart_without(self) -> None:
        """Delete a pod while no kubelet runs."""
        name = self._any()
        self.notes.step = f"restart without {name}"
        self.counts["restarts"] += 1
        self._node.kubelet.stop()
        self._node.forget(name)
        self._leave(name)
        if not self._start(self._now):
            self._begin_anew()

    def _reconfigure(self) -> None:
        """Start the next kubelet with another configuration; where it does not start, with the one before."""
        before = self._now
        self.counts["restarts"] += 1
        self.counts["restarts with another configuration"] += 1
        config = change_configuration(self._r, self._configuration, before)
        self.notes.step = f"restart with {_what_differs(before, config)}"
        self._node.kubelet.stop()
        if not self._start(config):
            self.notes.step = "restart as before"
            if not self._start(before):
                self._begin_anew()

    def _begin_anew(self) -> None:
        """Remove all pods and state files, as no kubelet starts on them. Where the configuration itself was refused,
        draw others until one starts."""
        self.counts["drains"] += 1
        for pod in self._node.pods():
            self._node.forget(pod["metadata"]["name"])
        self._running.clear()
        config = self._configuration.kubelet
        self.notes.step = "start on an empty node"
        while True:
            for name in (*FILES, ACTUATED_STATE_FILE):
                (self._node.kubelet.folder / name).unlink(missing_ok=True)
            self._model = Model(self._node.kubelet.machine, cgroup_version(), self._inventory)
            if self._start(config):
                return
            config = change_configuration(self._r, self._configuration, self._configuration.kubelet)

    # Drawing

    def _draw(self) -> Json:
        pod = self._resizable.pod() if self._resizable else self._drawer.pod(pod_level=often(self._r, 0.45))
        spec = pod["spec"]
        spec.pop("overhead", None)
        without_chance(spec, self._devices)
        if often(self._r, 0.15):
            spec["runtimeClassName"] = WITH_OVERHEAD
        spec["restartPolicy"] = "Never" if often(self._r, 0.2) else "Always"
        for container in spec.get("initContainers", ()):
            if container.get("restartPolicy") != "Always":
                container["command"] = ["exit", "0"]
        return {"metadata": {"name": pod["metadata"]["name"]}, "spec": spec}

    def _any(self) -> str:
        return self._r.choice(list(self._running))

    def _leave(self, name: str, *, listed: bool = False) -> None:
        del self._running[name]
        self._model.remove(self._uids[name], listed=listed)
        if not listed and self._node.kubelet.runs:
            self._node.kubelet.keep_house()

    def _new_second(self) -> None:
        """Wait for a new second: a kubelet re-admits in order of creation, whose times have a resolution of a
        second."""
        if self._running:
            newest = max(pod["metadata"]["creationTimestamp"] for pod in self._running.values())
            while time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) <= newest:
                time.sleep(0.02)

    # Comparing

    def _compare(self) -> None:
        """Compare state files, PodResources and messages to the runtime, once the kubelet has caught up."""
        kubelet, model = self._node.kubelet, self._model
        for name, content in model.files().items():
            soon(partial(_has, kubelet, name, content), PATIENCE)
            self.counts["state files"] += 1
            self._same_file(name, kubelet.file(name), content)
        if model.has_devices:
            compare_device_file(self.notes, kubelet, model)
        compare_pod_resources(self.notes, kubelet, model)
        for name, uid in ((name, self._uids[name]) for name in self._running):
            expected = self._as_created(uid, compare.predict_containers(model.effects(uid)))
            soon(partial(self._is_told, uid, expected), PATIENCE)
            for container, resources in compare.read_containers(self._node.runtime, uid).items():
                self.counts["containers"] += 1
                self.notes.same(f"what the runtime knows of {name}/{container}", resources, expected[container])

    def _same_file(self, name: str, real: bytes, predicted: bytes) -> None:
        if (
            name == MEMORY_STATE_FILE
            and real != predicted
            and compare.normalise_memory_state(real) == compare.normalise_memory_state(predicted)
        ):
            self.counts["memory state files in another order"] += 1
            real = predicted
        self.notes.same(name, real.decode(), predicted.decode())

    def _as_created(self, uid: str, expected: dict[str, Json]) -> dict[str, Json]:
        """Add what containers got when they were created, except their CPUs: no kubelet sends a running container
        anything else, even where another configuration, or memory booked elsewhere, would give a new one other values.
        """
        for container in self._node.runtime.of_pod(uid):
            if container.state == RUNNING:
                now = expected[container.name]
                created = self._created.setdefault(container.id, now)
                expected[container.name] = {**created, "cpus": now["cpus"]}
                self.counts["containers that a new one would differ from"] += expected[container.name] != now
        return expected

    def _is_told(self, uid: str, expected: dict[str, Json]) -> bool:
        found = compare.read_containers(self._node.runtime, uid)
        return all(expected[name] == own for name, own in found.items())

    def _last_start(self) -> None:
        """Compare whether the next kubelet starts with `podslice state verify`."""
        self.notes.step = "last start"
        predicted = commands.next_start(self._node.kubelet)
        self._node.kubelet.stop()
        self.counts["restarts"] += 1
        self.notes.same("podslice state verify", self._start(self._now), predicted)

    def _same_refusal(self, name: str, refusal: Refusal | None) -> None:
        status = self._node.get(name)["status"]
        real = (status.get("reason"), status.get("message")) if status["phase"] == "Failed" else ("", "admitted")
        predicted = ("", "admitted") if refusal is None else (refusal.reason, _PREFIX + refusal.message)
        self.notes.same(f"verdict on {name}", real, predicted)

    def _verdict(self, pod: Json) -> commands.Verdict:
        status = pod["status"]
        if status["phase"] == "Failed":
            return commands.Verdict(status["reason"], status["message"].removeprefix(_PREFIX), {})
        cpus = {
            own.name: own.config.linux.resources.cpuset_cpus
            for own in self._node.runtime.of_pod(pod["metadata"]["uid"])
        }
        return commands.Verdict("", "", cpus)


def _has(kubelet: RealKubelet, name: str, content: bytes) -> bool:
    found = kubelet.file(name)
    return found == content or (
        name == MEMORY_STATE_FILE and compare.normalise_memory_state(found) == compare.normalise_memory_state(content)
    )


def _resizable(spec: Json) -> Json:
    """Return the part of a pod's specification that a resize names."""
    found: Json = {}
    for part in ("containers", "initContainers"):
        named = [own for own in spec.get(part, ()) if part == "containers" or own.get("restartPolicy") == "Always"]
        if named:
            found[part] = [{"name": own["name"], "resources": own.get("resources", {})} for own in named]
    return found | ({"resources": spec["resources"]} if "resources" in spec else {})


def _restarts(pod: Json, container: str) -> int:
    statuses = (pod["status"].get("containerStatuses") or []) + (pod["status"].get("initContainerStatuses") or [])
    return sum(own["restartCount"] for own in statuses if own["name"] == container and "running" in own["state"])


def _what_differs(before: Json, after: Json) -> str:
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(f"{name} {after.get(name)}" for name in names) or "the same configuration"
