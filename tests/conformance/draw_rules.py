"""LimitRange and ResourceQuota objects drawn at random from a seed, good and bad ones."""

from __future__ import annotations

from tests.conformance.draw import Draw, Json

_AMOUNTS = {
    "cpu": ("100m", "250m", "500m", "1", "1.5", "2", "4", "0"),
    "memory": ("64Mi", "128Mi", "256Mi", "1Gi", "1.5Gi", "0", "100M"),
    "ephemeral-storage": ("1Gi", "100M", "0"),
    "hugepages-2Mi": ("2Mi", "64Mi", "0"),
    "example.com/dev": ("1", "2", "0"),
    "storage": ("1Gi", "2Gi"),
}
_RATIOS = ("1", "2", "1.5", "3", "10", "0.5")
_ODD_AMOUNTS = ("-1", "1e30", "9223372036854775807", "0.0001", "1n", "12345.678Ki")
_ODD_NAMES = ("foo", "Example.com/x", "requests.cpu", "kubernetes.io/foo", "pods", "", "a b", "hugepages-x")
_ODD_TYPES = ("", "Deployment", "example.com/Foo", "pod", "a b")
_HARD = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods", "count/pods",
         "requests.ephemeral-storage", "ephemeral-storage", "limits.ephemeral-storage", "hugepages-2Mi",
         "requests.hugepages-2Mi", "requests.example.com/dev")  # fmt: skip
_SCOPES = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating")


class RuleDraw(Draw):
    """The rules of a namespace about its pods."""

    def limit_range(self, name: str) -> Json:
        types = self.random.sample(("Container", "Pod", "PersistentVolumeClaim"), self.one((1, 1, 2, 2, 3)))
        types += [types[0]] * self.odd(0.05) + [self.one(_ODD_TYPES)] * self.odd(0.05)
        limits = [self.limit_item(kind) for kind in types]
        return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": limits}}

    def limit_item(self, kind: str) -> Json:
        item: Json = {"type": kind}
        names = ["storage"] if kind == "PersistentVolumeClaim" else ["cpu", "memory"]
        names += [self.one(tuple(_AMOUNTS))] * self.chance(0.2) + [self.one(_ODD_NAMES)] * self.odd(0.05)
        fields = ["min", "max"]
        if kind != "Pod" or self.odd(0.1):
            fields += ["default", "defaultRequest"]
        for field in fields:
            if self.chance(0.5):
                item[field] = {one: self.bound(one) for one in names if self.chance(0.6)}
        if self.chance(0.25):
            item["maxLimitRequestRatio"] = {one: self.one(_RATIOS) for one in names if self.chance(0.5)}
        return item

    def bound(self, name: str) -> str:
        if self.odd(0.03):
            return str(self.one(_ODD_AMOUNTS))
        return str(self.one(_AMOUNTS.get(name, ("1", "2"))))

    def quota(self, name: str) -> Json:
        """With a status, as if the controller had counted."""
        hard = {one: self.hard(one) for one in self.random.sample(_HARD, self.one((1, 2, 4, 8, len(_HARD))))}
        used = {one: self.one(("0", "0", amount, "1")) for one, amount in hard.items()}
        spec: Json = {"hard": hard}
        if self.chance(0.3):
            spec = {"hard": {one: hard.get(one, "0") for one in ("pods",)}, "scopes": [self.one(_SCOPES)]}
            used = {"pods": "0"}
        status = {"hard": spec["hard"], "used": used}
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec, "status": status}

    def hard(self, name: str) -> str:
        plain = name.removeprefix("requests.").removeprefix("limits.")
        return str(self.one(("0", "0", *_AMOUNTS.get(plain, ("1", "5")))))
