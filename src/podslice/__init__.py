"""podslice: the kubelet's CPU, memory, device and topology decisions as a library.

    from podslice import KubeletConfig, Machine, Node, Pod

`Node(machine, config).admit(pod)` returns a `Decision`.
"""

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.errors import AdmissionError, InputError, PodsliceError, StartError, UpstreamDefectError
from podslice.core.machine.model import Machine
from podslice.core.node import ContainerDecision, Decision, Node
from podslice.core.pod.spec import Pod
from podslice.core.values.cpuset import CPUSet
from podslice.core.values.quantity import Quantity

__all__ = [
    "AdmissionError",
    "CPUSet",
    "ContainerDecision",
    "Decision",
    "InputError",
    "KubeletConfig",
    "Machine",
    "Node",
    "Pod",
    "PodsliceError",
    "Quantity",
    "StartError",
    "UpstreamDefectError",
]
