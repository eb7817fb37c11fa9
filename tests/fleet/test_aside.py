"""Work in processes beside the one that waits, and the order in which cells are made."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install 'podslice[fleet]'")

from podslice.core.errors import InputError
from podslice.fleet import aside as aside_module
from podslice.fleet.aside import aside
from podslice.fleet.order import longest_first
from tests.clock import until
from tests.fleet.test_twins import KINDS, scenario, study_of

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def helpers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    idle: list[aside_module.Helper] = []
    monkeypatch.setattr(aside_module, "_IDLE", idle)
    yield
    for helper in idle:
        helper.close()


def ask(work: Callable[[Any], Any], argument: Any) -> Any:
    return pickle.loads(aside(pickle.dumps((work, argument))))


def own_number(_: object) -> int:
    print("what work prints is no answer")
    return os.getpid()


def refuse(text: str) -> None:
    raise InputError(text)


def end(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_one_process_for_one_thread_after_another() -> None:
    """Work is done elsewhere; who comes next gets the same process, who comes meanwhile another."""
    first = ask(own_number, 0)
    assert first != os.getpid()
    assert ask(own_number, 0) == first
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(ask(own_number, 0))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert len(aside_module._IDLE) <= 2


def test_what_is_raised_comes_back() -> None:
    """Problems are those of the function; the process works on."""
    with pytest.raises(InputError, match="no such file"):
        ask(refuse, "no such file")
    assert len(aside_module._IDLE) == 1
    assert ask(len, "abc") == 3


def test_a_process_that_is_lost() -> None:
    """It is told as any executor tells it, and the next question has another process."""
    with pytest.raises(BrokenExecutor, match="ended with -9"):
        ask(end, 0)
    assert ask(len, "abc") == 3


def test_no_process_outlives_who_asks(tmp_path: Path) -> None:
    """Whoever waits is killed in the middle of the work: it ends too."""
    code = """
import pickle, sys, time
from pathlib import Path
from podslice.fleet.aside import aside
from tests.fleet.test_aside import long_work
aside(pickle.dumps((long_work, sys.argv[1])))
"""
    note = tmp_path / "pid"
    asker = subprocess.Popen([sys.executable, "-c", code, str(note)])
    asyncio.run(until(lambda: note.exists() and note.read_text().endswith("\n")))
    worker = int(note.read_text())
    asker.kill()
    asker.wait()
    asyncio.run(until(lambda: not is_running(worker)))


def long_work(note: str) -> None:
    Path(note).write_text(f"{os.getpid()}\n")
    while True:
        pass


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_cells_that_take_longest_come_first(tmp_path: Path) -> None:
    """By what the kubelets have to decide and what the scheduler asks; equal ones in their own order."""
    data = scenario(
        {name: {"set": KINDS[name]} for name in ("none", "restricted", "singleMemory")},
        seeds=[1, 2],
        schedulers={"kube": {}, "exact": {"filter": "exact"}},
    )
    study = study_of(tmp_path, data)
    order = [(cell.kubelet, cell.scheduler, cell.seed) for cell in longest_first(study, study.cells)]
    assert order[:4] == [(name, how, seed) for name, how in SLOW for seed in (1, 2)]
    assert order[-2:] == [("none", "kube", 1), ("none", "kube", 2)]
    assert len(order) == len(study.cells)


SLOW = (("singleMemory", "exact"), ("singleMemory", "kube"))
