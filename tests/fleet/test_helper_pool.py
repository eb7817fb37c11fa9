"""Work in processes beside the one that waits, and the order in which cells are made."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.scenario.run import sort_longest_first
from podslice.fleet.workers import dask_worker, helper_pool
from podslice.fleet.workers.dask_worker import quiet_scheduler, slow_timers
from podslice.fleet.workers.helper_pool import FileParcel, HelperPool
from podslice.fleet.workers.progress import ProgressReporter
from podslice.values.errors import InputError
from tests.clock import until
from tests.fleet.test_equivalence import KINDS, load_study, scenario

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(autouse=True)
def helpers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    idle: list[helper_pool.HelperProcess] = []
    monkeypatch.setattr(helper_pool, "_IDLE", idle)
    yield
    for helper in idle:
        helper.stop()


def ask(work: Callable[[Any], Any], argument: Any, **named: Any) -> Any:
    return pickle.loads(asyncio.run(HelperPool().ask(pickle.dumps((work, argument)), **named)))


def own_number(_: object) -> int:
    print("what work prints is not an answer")
    return os.getpid()


def refuse(text: str) -> None:
    raise InputError(text)


def end(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def meet(folder: str) -> int:
    (Path(folder) / str(os.getpid())).touch()
    asyncio.run(until(lambda: len(list(Path(folder).iterdir())) == 2))
    return os.getpid()


def test_one_process_for_one_task_after_another(tmp_path: Path) -> None:
    """Work is done elsewhere; who comes next gets the same process, who comes meanwhile another."""
    first = ask(own_number, 0)
    assert first != os.getpid()
    assert ask(own_number, 0) == first

    async def both() -> list[bytes]:
        question = pickle.dumps((meet, str(tmp_path)))
        return await asyncio.gather(*(HelperPool().ask(question) for _ in range(2)))

    found = {pickle.loads(answer) for answer in asyncio.run(both())}
    assert len(found) == 2
    assert first in found
    assert len(helper_pool._IDLE) == 2


class Named(NamedTuple):
    folder: str = ""
    name: str = ""


def read_file(named: Named) -> str:
    return Path(named.folder, named.name).read_text()


def test_files_come_along() -> None:
    """Those that a name finds further up as well; the same ones are sent once, others take their place."""
    first = FileParcel("a", pickle.dumps((1, [("in/one", b"1"), ("../two", b"2")])))
    assert ask(read_file, Named(name="in/one"), files=first) == "1"
    assert ask(read_file, Named(name="../two"), files=FileParcel("a", b"")) == "2"
    assert ask(read_file, Named(name="one"), files=FileParcel("b", pickle.dumps((0, [("one", b"3")])))) == "3"
    with pytest.raises(FileNotFoundError):
        ask(read_file, Named(name="in/one"), files=FileParcel("b", b""))


def report_twice(key: str) -> str:
    reporter = ProgressReporter(key)
    reporter(0.25)
    reporter(0.5)
    return key


def test_progress_comes_before_the_answer() -> None:
    """The first report comes at once, the next ones after some time; without a listener they are dropped."""
    heard: list[tuple[str, float]] = []
    assert ask(report_twice, "a", report=lambda key, share: heard.append((key, share))) == "a"
    assert heard == [("a", 0.25)]
    assert ask(report_twice, "b") == "b"


def test_a_closed_pool(tmp_path: Path) -> None:
    """A closed pool ends its processes and refuses further work; other pools go on."""
    note = tmp_path / "pid"

    async def cancel_run() -> int:
        pool, other = HelperPool(), HelperPool()
        works = asyncio.ensure_future(pool.ask(pickle.dumps((long_work, str(note)))))
        await until(lambda: note.exists() and note.read_text().endswith("\n"))
        pool.close()
        with pytest.raises(BrokenExecutor):
            await works
        with pytest.raises(BrokenExecutor, match="the run was cancelled"):
            await pool.ask(pickle.dumps((len, "abc")))
        assert pickle.loads(await other.ask(pickle.dumps((len, "abc")))) == 3
        return int(note.read_text())

    assert not is_running(asyncio.run(cancel_run()))


def test_a_cancelled_task_leaves_no_process(tmp_path: Path) -> None:
    """A worker that closes cancels its tasks: their processes end."""
    note = tmp_path / "pid"

    async def cancel() -> int:
        works = asyncio.ensure_future(HelperPool().ask(pickle.dumps((long_work, str(note)))))
        await until(lambda: note.exists() and note.read_text().endswith("\n"))
        works.cancel()
        with pytest.raises(asyncio.CancelledError):
            await works
        return int(note.read_text())

    assert not is_running(asyncio.run(cancel()))
    assert not helper_pool._IDLE


class Timer:
    def __init__(self, callback_time: float) -> None:
        self.callback_time = callback_time


def test_timers_of_a_scheduler_are_slow_while_it_has_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock is as before when the client is gone, however that went."""
    monkeypatch.setattr(dask_worker, "_LOOK", 0.01)

    class Scheduler:
        clients: ClassVar = {"run": 1}
        periodic_callbacks: ClassVar = {"tick": Timer(20.0)}

    async def go() -> float:
        quiet_scheduler("run", dask_scheduler=Scheduler)
        await until(lambda: Scheduler.periodic_callbacks["tick"].callback_time == 1000.0)
        del Scheduler.clients["run"]
        await until(lambda: not dask_worker._QUIET_TASKS)
        return Scheduler.periodic_callbacks["tick"].callback_time

    assert asyncio.run(go()) == 20.0


def test_timers_of_a_worker_are_slow_while_there_is_work() -> None:
    """Timers that go off often are slow from the first cell to the last; others stay as they are."""
    timers = {"tick": Timer(20.0), "profile": Timer(5000.0), "heartbeat": Timer(500.0)}
    with slow_timers(timers):
        with slow_timers(timers):
            assert [timer.callback_time for timer in timers.values()] == [1000.0, 5000.0, 500.0]
        assert timers["tick"].callback_time == 1000.0
    assert [timer.callback_time for timer in timers.values()] == [20.0, 5000.0, 500.0]
    with slow_timers({}):
        pass


def test_exceptions_come_back() -> None:
    """Problems are those of the function; the process works on."""
    with pytest.raises(InputError, match="no such file"):
        ask(refuse, "no such file")
    assert len(helper_pool._IDLE) == 1
    assert ask(len, "abc") == 3


def test_a_lost_process() -> None:
    """A lost process is reported as by any executor, and the next task has another process."""
    with pytest.raises(BrokenExecutor, match="ended with -9"):
        ask(end, 0)
    assert ask(len, "abc") == 3


def test_no_process_outlives_its_parent(tmp_path: Path) -> None:
    """The waiting process is killed in the middle of the work: the helper ends too."""
    code = """
import asyncio, pickle, sys
from podslice.fleet.workers.helper_pool import HelperPool
from tests.fleet.test_helper_pool import long_work
asyncio.run(HelperPool().ask(pickle.dumps((long_work, sys.argv[1]))))
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
    study = load_study(tmp_path, data)
    order = [(cell.kubelet, cell.scheduler, cell.seed) for cell in sort_longest_first(study, study.cells)]
    assert order[:4] == [(name, how, seed) for name, how in SLOW for seed in (1, 2)]
    assert order[-2:] == [("none", "kube", 1), ("none", "kube", 2)]
    assert len(order) == len(study.cells)


SLOW = (("singleMemory", "exact"), ("singleMemory", "kube"))
