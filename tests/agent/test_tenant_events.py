"""No event on a pod names pods of other namespaces."""

from __future__ import annotations

import pytest

from podslice.agent.api_server.explaining import event_text
from podslice.agent.api_server.tenantevents import FOREIGN_POD, TenantEvents, hide_foreign_pods
from podslice.agent.records import ReportedRefusal
from podslice.service.identity import Identity

_PODS = [Identity(name, namespace, name, {}) for namespace, name in (
    ("tenant-a", "payroll-1"), ("tenant-a", "payroll-10"), ("tenant-b", "mine"), ("default", "nvidia.com"),
)]  # fmt: skip


class _Events:
    def __init__(self) -> None:
        self.said: list[str] = []

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
        self.said.append(message)

    def emit_node(self, kind: str, reason: str, message: str) -> None:
        self.said.append(message)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Restart tenant-a/payroll-1 and tenant-a/payroll-10.", f"Restart {FOREIGN_POD} and {FOREIGN_POD}."),
        ("Restart tenant-b/mine, then tenant-a/payroll-1", f"Restart tenant-b/mine, then {FOREIGN_POD}"),
        ("asks for nvidia.com/gpu, 2/3 are free", "asks for nvidia.com/gpu, 2/3 are free"),
        ("nothing", "nothing"),
    ],
)
def test_strangers_have_no_names(text: str, shown: str) -> None:
    """Pods of one's own namespace, devices and fractions stay."""
    assert hide_foreign_pods(text, "tenant-b", _PODS) == shown


def test_every_event_passes_here() -> None:
    """Texts about a pod are cleaned; texts about the node are for its operator."""
    events = _Events()
    sink = TenantEvents(events, lambda: _PODS)
    sink.emit(_PODS[2], "Warning", "R", "waits for tenant-a/payroll-1 to end")
    sink.emit_node("Normal", "R", "tenant-a/payroll-1 moved")
    assert events.said == [f"waits for {FOREIGN_POD} to end", "tenant-a/payroll-1 moved"]


def test_no_text_is_cut_within_a_name() -> None:
    """Half a name is nobody's, and would be told."""
    fix = " and ".join(f"tenant-a/payroll-{number}" for number in range(40))
    for length in range(200, 260):
        refusal = ReportedRefusal("R", "m", "w " * length + "tenant-a/payroll-10 tenant-a/payroll-1")
        told = event_text(refusal, "x" * (length - 200) + " " + fix)
        pods = [Identity(str(n), "tenant-a", f"payroll-{n}", {}) for n in range(40)]
        assert "payroll" not in hide_foreign_pods(told, "tenant-b", pods)
