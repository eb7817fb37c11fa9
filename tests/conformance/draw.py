"""Pods drawn at random from a seed, good and bad ones, around what concerns resources."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

_CPU = ("100m", "250m", "500m", "1", "2", "1.5", "1500m", "4", "0", "0.1", "1e0", "100u", "3", "0.0005", "2000m", "1k",
        2, 0.5, "1n", "+2", ".5", "2.", "1e-4", "12345678901234567890m")  # fmt: skip
_MEMORY = ("64Mi", "128Mi", "1Gi", "1.5Gi", "256M", "2Gi", "0", "1e9", "134217728", "100m", "1Ki", "1Ti", "128974848",
           "0.5Gi", "12345.678Ki", 1073741824, "1E", "7Ei", "9223372036854775807", "9223372036854775808", "1e30", "3E2",
           "0.1", "1.0001Mi")  # fmt: skip
_PAGES = ("2Mi", "4Mi", "64Mi", "3Mi", "0", "1Gi", "2Gi", "512Mi", "2097152")
_DISK = ("1Gi", "100M", "0", "2Gi", "0.3", "500m")
_COUNT = ("1", "2", "0", "1500m", "0.5", 3, "1k")
_WRONG = ("-1", "abc", "1.2.3", "", "1Gi1", "-100m", "1 Gi", "1gi", "0x10", "1e", "∞", " 1", "1 ", "--1", "1Mii", True,
          ["1"], {"a": 1})  # fmt: skip
_NAMES = ("hugepages-2Mi", "hugepages-1Gi", "hugepages-3Mi", "ephemeral-storage", "example.com/dev", "nvidia.com/gpu",
          "kubernetes.io/foo", "foo", "requests.cpu", "Example.com/x", "pods", "storage", "hugepages-", "hugepages-x",
          "example.com/", "/x", "example.com/a/b", "limits.memory", "example.com/requests.x", "cpu.", "CPU",
          "services", "requests.example.com/dev", "attachable-volumes-x", "a" * 64, "example.com/" + "b" * 64,
          "requests.nvidia.com/gpu", "memory ", "x.kubernetes.io/y", "pod.alpha.kubernetes.io/z")  # fmt: skip
_LABELS = ("c", "app", "a-b", "A", "a.b", "-a", "a-", "a_b", "", "a" * 63, "a" * 64, "ä", "0", "a" * 254)
_KEYS = ("app", "example.com/app", "Example.com/app", "a b", "", "a/b/c", "-x", "x-", "a" * 64, "a." * 127 + "a/x")
_POLICIES = ("Always", "Never", "OnFailure", "Sometimes", "")
_FEATURES = ("cpu", "memory", "cpu", "memory", "ephemeral-storage", "", "foo")
_CLAIMS = (("c",), ("c", "d"), ("d", "c"), ("c", "c"), ("C!", "c"), ("", "c"))
_VOLUMES = ({"medium": "Memory"}, {"medium": "HugePages"}, {"medium": "HugePages-2Mi"}, {"sizeLimit": "1Gi"}, {})


class Draw:
    """Everything follows from the seed. `rare` scales how often something odd is drawn."""

    def __init__(self, seed: int, rare: float = 1.0) -> None:
        self.random = random.Random(seed)
        self._rare = rare

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def odd(self, share: float) -> bool:
        return self.random.random() < share * self._rare

    def one(self, values: Sequence[Any]) -> Any:
        return copy.deepcopy(self.random.choice(values))

    def one_of(self, values: Sequence[Any]) -> Any:
        """One of them itself, to be changed."""
        return self.random.choice(values)

    # Amounts

    def amount(self, name: str) -> Any:
        if self.odd(0.012):
            return self.one(_WRONG)
        if name.startswith("hugepages-"):
            return self.one(_PAGES)
        return self.one({"cpu": _CPU, "memory": _MEMORY, "ephemeral-storage": _DISK}.get(name, _COUNT))

    def stanza(self) -> Json:
        """A `resources` with whatever names and amounts."""
        names = [name for name in ("cpu", "memory") if self.chance(0.85)]
        names += [self.one(_NAMES[:4])] * self.chance(0.2)
        names += [self.one(_NAMES)] * self.odd(0.08)
        limits = {name: self.amount(name) for name in names if self.chance(0.75)}
        if self.chance(0.4):
            requests = dict(limits)
        else:
            requests = {
                name: limits[name] if name in limits and self.chance(0.4) else self.amount(name)
                for name in names
                if self.chance(0.7)
            }
        found: Json = {}
        if limits or self.odd(0.1):
            found["limits"] = limits
        if (requests and self.chance(0.8)) or self.odd(0.1):
            found["requests"] = requests
        if self.odd(0.03):
            found["claims"] = [self.claim() for _ in range(self.one((0, 1, 2, 3)))]
        if self.odd(0.01):
            found[self.one(("limit", "request", "cpu", "Limits"))] = self.one(({"cpu": "1"}, "1"))
        return found

    def claim(self) -> Json:
        made = {"name": self.one(("c", "d", "c", "d", "e", ""))}
        return {**made, "request": self.one(("r", "s", "", "R!"))} if self.chance(0.4) else made

    def sane(self, *, pod: bool = False) -> Json:
        """A `resources` that a person would write: the request below the limit, ordinary spellings."""
        found: Json = {}
        scale = 8 if pod else 1
        for name, least, most in (("cpu", (100, 250, 500), (1000, 2000, 3500)), ("memory", (64, 128), (256, 1024))):
            unit = "m" if name == "cpu" else "Mi"
            small, large = f"{self.one(least) * scale}{unit}", f"{self.one(most) * scale}{unit}"
            request, limit = self.one(((large, large), (small, large), (None, large), (small, None), (None, None)))
            if request:
                found.setdefault("requests", {})[name] = request
            if limit:
                found.setdefault("limits", {})[name] = limit
        if self.chance(0.08):
            found.setdefault("limits", {})["hugepages-2Mi"] = "256Mi" if pod else self.one(("2Mi", "64Mi"))
        if self.chance(0.05) and not pod:
            found.setdefault("limits", {})["example.com/dev"] = "1"
        return found

    def resources(self, *, pod: bool = False) -> Json | None:
        kind = self.random.random()
        if kind < 0.2:
            return None
        if kind < 0.24:
            return {}
        return self.sane(pod=pod) if kind < 0.72 else self.stanza()

    # Containers

    def container(self, name: str) -> Json:
        made: Json = {"name": self.one(_LABELS) if self.odd(0.02) else name, "image": "localhost/sleep:1"}
        resources = self.resources()
        if resources is not None:
            made["resources"] = resources
        if self.chance(0.12):
            made["resizePolicy"] = [self.resize_policy() for _ in range(self.one((1, 1, 2, 2, 3)))]
        if self.odd(0.01):
            made["resizePolicy"] = []
        if self.odd(0.01):
            made["imagePullPolicy"] = self.one(("Always", "IfNotPresent", "Never"))
        return made

    def resize_policy(self) -> Json:
        resource = self.one(_FEATURES) if self.odd(0.15) else self.one(("cpu", "memory"))
        policies = ("NotRequired", "RestartContainer")
        return {
            "resourceName": resource,
            "restartPolicy": self.one((*policies, "", "x") if self.odd(0.1) else policies),
        }

    def init_container(self, name: str) -> Json:
        made = self.container(name)
        if self.chance(0.5):
            made["restartPolicy"] = "Always"
        elif self.odd(0.06):
            made["restartPolicy"] = self.one(_POLICIES)
        return made

    def ephemeral_container(self) -> Json:
        made: Json = {"name": self.one(("debug", "c0", *_LABELS)), "image": "localhost/sleep:1"}
        resources = self.resources() if self.chance(0.6) else None
        return made if resources is None else {**made, "resources": resources}

    # Pods

    def pod(self, name: str) -> Json:
        spec: Json = {"containers": [self.container(f"c{k}") for k in range(self.one((1, 1, 2, 3)))]}
        if self.odd(0.005):
            spec["containers"] = []
        for container in spec["containers"]:
            if self.odd(0.03):
                container["restartPolicy"] = self.one(_POLICIES)
        if self.chance(0.35):
            spec["initContainers"] = [self.init_container(f"i{k}") for k in range(self.one((1, 2, 3)))]
        if self.odd(0.02):
            spec["ephemeralContainers"] = [self.ephemeral_container() for _ in range(self.one((1, 2)))]
        if self.chance(0.5):
            resources = self.resources(pod=True)
            if resources is not None:
                spec["resources"] = resources
        self._others(spec)
        if self.odd(0.02):
            self._break(spec)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(name), "spec": spec}

    def _break(self, spec: Json) -> None:
        """Something of another type than it should be, or null."""
        owner: Json = self.one_of([spec, *spec["containers"], *spec.get("initContainers", ())])
        if self.chance(0.5):
            owner = owner.setdefault("resources", {})
            field = self.one(("limits", "requests", "claims"))
        else:
            field = "resources"
        owner[field] = self.one((None, [], "1", 1, 1.5, True, {}, [1], ["x"]))

    def _others(self, spec: Json) -> None:
        if self.chance(0.15):
            spec["restartPolicy"] = self.one(("Never", "OnFailure", "Always"))
        if self.odd(0.01):
            spec["restartPolicy"] = self.one(("Sometimes", ""))
        if self.chance(0.04):
            spec["os"] = {"name": self.one(("linux", "linux", "windows"))}
        if self.chance(0.08):
            spec["volumes"] = [{"name": "v", "emptyDir": self.one(_VOLUMES)}]
        if self.chance(0.05):
            spec["hostNetwork"] = True
        if self.odd(0.006):
            spec["os"] = self.one(({"name": ""}, {"name": "plan9"}, {}))
        if self.chance(0.05):
            spec["activeDeadlineSeconds"] = self.one((1, 60, 2147483647))
        if self.odd(0.01):
            spec["activeDeadlineSeconds"] = self.one((0, -1, 2147483648))
        if self.odd(0.05):
            spec["resourceClaims"] = [{"name": one, "resourceClaimName": "any"} for one in self.one(_CLAIMS)]
        if self.chance(0.05):
            spec["runtimeClassName"] = "with-overhead"
            spec["overhead"] = {"cpu": self.one(("250m", "0.25")), "memory": "120Mi"}
        if self.odd(0.01):
            spec["nodeName"] = self.one(("n1", "N1", "n_1", "n.1"))
        if self.odd(0.01):
            spec[self.one(("resource", "Overhead", "initcontainers"))] = self.one(({}, [], "1"))

    def _metadata(self, name: str) -> Json:
        made: Json = {"name": name}
        if self.odd(0.02):
            made["name"] = self.one([one for one in _LABELS if one])
        if self.odd(0.01):
            made["labels"] = {self.one(_KEYS): self.one(("x", *_LABELS))}
        if self.odd(0.01):
            made["annotations"] = {self.one(_KEYS): self.one(("x", *_LABELS))}
        return made
