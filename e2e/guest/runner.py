"""Answers the host's calls inside the guest: one JSON object a line over a virtio serial port."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, "/opt/e2e")
import node

CGROUP = Path("/sys/fs/cgroup")
PROCESSES: dict[str, subprocess.Popen[bytes]] = {}
_cri: Any = None


def cri() -> Any:
    """The CRI client, connected at first use."""
    global _cri
    if _cri is None:
        from cri import Runtime

        _cri = Runtime("unix:///run/containerd/containerd.sock")
    return _cri


def wait_ready() -> dict[str, object]:
    """containerd runs and its images are there."""
    start_containerd()
    done = subprocess.run(
        ["ctr", "-n", "k8s.io", "images", "import", "--no-unpack", "/opt/e2e/images.tar"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    (CGROUP / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +pids")
    if not Path("/run/systemd/system").exists():
        make_cgroup("kubepods")
    cri().version()
    return {"cpus": os.cpu_count()}


def start_containerd() -> None:
    """Start containerd and wait until it answers."""
    log = open("/run/containerd.log", "ab")  # noqa: SIM115
    PROCESSES["containerd"] = subprocess.Popen(["containerd"], stdout=log, stderr=log)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if subprocess.run(["ctr", "version"], capture_output=True).returncode == 0:
            return
        time.sleep(0.5)
    raise RuntimeError("containerd does not answer: " + Path("/run/containerd.log").read_text()[-500:])


def kill(name: str, number: int = signal.SIGKILL) -> int:
    """Signal one of our processes and wait for its end."""
    process = PROCESSES.pop(name)
    process.send_signal(number)
    return process.wait(60)


def is_running(name: str) -> bool:
    """Has one of our processes not ended by itself?"""
    return PROCESSES[name].poll() is None


def unpack_checkout() -> str:
    """Unpack the package under test from the second disk."""
    Path("/opt/podslice").mkdir(parents=True, exist_ok=True)
    return shell("dd if=/dev/vdb bs=1M skip=1 2>/dev/null | tar -xf - -C /opt/podslice")


def start(name: str, command: list[str], variables: dict[str, str] | None = None) -> int:
    """Start a process in the background; its output goes to /run/NAME.log."""
    log = open(f"/run/{name}.log", "ab")  # noqa: SIM115
    PROCESSES[name] = subprocess.Popen(command, stdout=log, stderr=log, env={**environment(), **(variables or {})})
    return PROCESSES[name].pid


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": "/opt/podslice"}


def wait_agent(path: str, ready: bool = True, seconds: float = 60) -> None:
    """The agent behind a socket is connected to the runtime, and ready unless that is not asked for."""
    deadline = time.monotonic() + seconds
    last = "no answer"
    while time.monotonic() < deadline:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10)
                client.connect(path)
                answer = json.loads(b"".join(iter(lambda: client.recv(65536), b"")))
            if answer["connected"] and not (ready and answer["ready"]):
                return
            last = f"connected {answer['connected']}, ready {answer['ready']}"
        except (OSError, ValueError) as error:
            last = str(error)
        if PROCESSES["agent"].poll() is not None:
            break
        time.sleep(0.2)
    raise RuntimeError(f"the agent is not ready: {last}: {Path('/run/agent.log').read_text()[-1500:]}")


def shell(command: str, timeout: float = 120) -> str:
    """Run a shell command; its output, or an error with what it said."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=timeout, env=environment())
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout


def read(path: str) -> str:
    return Path(path).read_text()


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def make_cgroup(name: str) -> None:
    """A cgroup below the root, with all controllers handed on."""
    path = CGROUP / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +pids")


def run_sandbox(pod: dict[str, object]) -> str:
    """RunPodSandbox; the id of the sandbox."""
    make_cgroup(str(pod["cgroup_parent"]).strip("/"))
    return str(cri().run_sandbox(pod))


def create_container(sandbox: str, pod: dict[str, object], container: dict[str, object]) -> str:
    return str(cri().create_container(sandbox, pod, container))


def start_container(container: str) -> int:
    """StartContainer; the pid of the container's first process."""
    cri().start_container(container)
    return int(cri().pid(container))


def remove_container(container: str) -> None:
    cri().stop_container(container)
    cri().remove_container(container)


def remove_sandbox(sandbox: str) -> None:
    cri().stop_sandbox(sandbox)
    cri().remove_sandbox(sandbox)


def update_container(container: str, resources: dict[str, object]) -> None:
    cri().update_container(container, resources)


def facts(pid: int) -> dict[str, str]:
    """Return the facts of a running process: its allowed CPUs and memory nodes, and its cgroup's files."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    group = Path(f"/proc/{pid}/cgroup").read_text().strip().split("::", 1)[1]
    found = {"cpus": status["Cpus_allowed_list"], "mems": status["Mems_allowed_list"], "cgroup": group}
    for name in ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpu.max", "cpu.weight", "memory.max"):
        path = CGROUP / group.strip("/") / name
        found[name] = path.read_text().strip() if path.exists() else ""
    for name in ("cpu.max", "cpu.weight", "memory.max"):
        path = CGROUP / Path(group.strip("/")).parent / name
        found[f"pod {name}"] = path.read_text().strip() if path.exists() else ""
    return found


def together(pods: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Many pods of one container each come at once, run at the same time, and go at once; what held for each."""
    with ThreadPoolExecutor(len(pods)) as pool:
        sandboxes = list(pool.map(lambda one: run_sandbox(one["pod"]), pods))
        containers = list(pool.map(lambda one, id: create_container(id, one["pod"], one["container"]), pods, sandboxes))
        found = [facts(pid) for pid in pool.map(start_container, containers)]
        list(pool.map(lambda id: persist(remove_container, id), containers))
        list(pool.map(lambda id: persist(remove_sandbox, id), sandboxes))
    return found


def persist(call: Callable[[str], None], argument: str) -> None:
    """Try again what the runtime could not do, as a kubelet does: a shim may be too busy to answer."""
    for _ in range(3):
        try:
            call(argument)
            return
        except Exception as error:
            last = error
            time.sleep(1)
    raise last


CALLS: dict[str, Any] = {
    function.__name__: function
    for function in (
        wait_ready, start_containerd, kill, is_running, unpack_checkout, start, wait_agent, shell, read, write,
        make_cgroup, run_sandbox, create_container, start_container, remove_container, remove_sandbox, update_container,
        facts, together, node.join_network, node.agent_status, node.pod_cgroups, node.keep_on_disk, node.import_image,
    )
}  # fmt: skip


def main() -> None:
    port = find_port()
    with open(port, "r+b", buffering=0) as channel:
        os.set_blocking(channel.fileno(), False)
        buffer = b""
        while True:
            buffer += receive(channel)
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                answer = json.dumps(respond(json.loads(line))).encode() + b"\n"
                while answer:
                    answer = answer[send(channel, answer) :]


def receive(channel: Any) -> bytes:
    """Return what the host has sent, maybe nothing. Looked for now and then whatever the kernel says: an emulated port
    can lose an interrupt."""
    data: bytes | None = channel.read(65536)
    if data:
        return data
    if data is None:
        select.select([channel], [], [], 0.2)
    else:
        time.sleep(0.02)
    return b""


def send(channel: Any, data: bytes) -> int:
    """The number of bytes the port took."""
    count: int | None = channel.write(data)
    if count is None:
        select.select([], [channel], [], 0.2)
    return count or 0


def find_port() -> str:
    """The virtio serial port by its name."""
    for path in Path("/sys/class/virtio-ports").iterdir():
        if (path / "name").read_text().strip() == "podslice":
            return f"/dev/{path.name}"
    raise RuntimeError("no port named podslice")


def respond(request: dict[str, Any]) -> dict[str, object]:
    try:
        return {"id": request["id"], "result": CALLS[request["call"]](**request["arguments"])}
    except Exception as error:
        print(traceback.format_exc(), flush=True)
        return {"id": request["id"], "error": f"{type(error).__name__}: {error}"[-2000:]}


if __name__ == "__main__":
    main()
