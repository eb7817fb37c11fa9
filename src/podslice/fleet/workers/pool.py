"""Cells on processes: of this machine, or elsewhere (`far`).

The seam is `concurrent.futures.Executor`; a task is a scenario and the key of a cell, and its answer is bytes. What a
cell comes to depends on nothing else, so it does not matter who makes it, beside whom, or in which order.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.shapes import WHOLE_GPU
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.codec import CellOutcome, ClassFacts, ShapeFacts, encode
from podslice.fleet.scenario.scenario_file import scenario_from_data
from podslice.fleet.workers.collecting import rare_collections
from podslice.fleet.workers.keeper import CellKeeper, stop_worker_at
from podslice.fleet.workers.shares import ShareListener, SharePipe, ShareTeller, Tell, TellsShares, tell_through
from podslice.values.errors import InputError, PodsliceError
from podslice.version import running_version

_PATIENCE = 2.0
"""Seconds that workers have to keep a checkpoint when they are to stop."""
TaskT = TypeVar("TaskT")
AnswerT = TypeVar("AnswerT")
_TICK = 0.25
"""Seconds after which who waits is told that nothing happened."""


class Task(NamedTuple):
    """One cell to simulate. `scenario`: JSON; `folder`: where its files are, which workers of other machines set;
    `verify`: as of `CellOptions`, None for the default; `checkpoint`: where the cell keeps itself while it runs, empty
    for nowhere, and `identity`: of the scenario; `release`: of podslice, where the worker may have another one."""

    scenario: str
    folder: str
    key: str
    verify: int | None = None
    checkpoint: str = ""
    identity: str = ""
    release: str = ""


class CellAnswer(NamedTuple):
    """A cell's outcome as bytes, or in a line why there is none; `warning`: a line about it all the same."""

    key: str
    data: bytes
    summary: Mapping[str, int]
    problem: str = ""
    warning: str = ""


def simulate(task: Task, tell: Tell | None = None) -> CellAnswer:
    """Make a cell, or the rest of one that has a checkpoint. What a worker does; without `tell` it tells how far it is
    as its process does."""
    if task.release not in ("", running_version()):
        problem = f"its worker has podslice {running_version()} and the run {task.release}: install the same there"
        return CellAnswer(task.key, b"", {}, problem)
    keeper = CellKeeper(Path(task.checkpoint), task.identity) if task.checkpoint else None
    begun, problem = keeper.begun() if keeper else (b"", "")
    warning = f"the checkpoint of cell {task.key} {problem}; it begins anew" if problem else ""
    try:
        study = study_of(task.scenario, task.folder)
        told = ShareTeller(task.key, tell)
        outcome = simulated(study, task.key, task.verify, begun=begun, keeper=keeper, progress=told)
    except PodsliceError as error:
        return CellAnswer(task.key, b"", {}, str(error))
    return CellAnswer(task.key, encode(outcome), outcome.result.summary, warning=warning)


def simulated(
    study: Study,
    key: str,
    verify: int | None = None,
    *,
    begun: bytes = b"",
    keeper: CellKeeper | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> CellOutcome:
    """What the cell of this key comes to; `progress` as of `run_cell`. Raises `InputError` and `ClassStartError`."""
    cell = next(one for one in study.cells if one.key == key)
    made = study.build(cell)
    options = made.options if verify is None else replace(made.options, verify=verify)
    with rare_collections(), keeper.watching() if keeper else nullcontext():
        offer = keeper.offer if keeper else None
        result = run_cell(made.fleet, made.workload, options, made.seed, progress=progress, offer=offer, saved=begun)
    return CellOutcome(
        result,
        tuple(
            ShapeFacts(one.name, one.cpu_request, one.requests.asked.get("memory", 0), one.gpu_request)
            for one in made.workload.shapes
        ),
        tuple(
            ClassFacts(one.name, one.allocatable["cpu"], one.allocatable["memory"], one.gpus * WHOLE_GPU)
            for one in made.fleet.classes
        ),
        tuple(node.name for node in made.fleet.nodes),
        made.workload.shape,
        made.workload.arrival,
        array("q", (node.kind for node in made.fleet.nodes)),
    )


@lru_cache(1)
def study_of(scenario: str, folder: str) -> Study:
    """The study of a scenario (JSON) whose files are in a folder; a worker reads it once. Raises `InputError`."""
    return Study(scenario_from_data(json.loads(scenario), "scenario"), Path(folder))


def _begin_worker(shares: Connection | None = None) -> None:
    """Ctrl-C is for the process that began the run, which tells its workers to stop."""
    if shares is not None:
        tell_through(shares)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop_worker_at(signal.SIGTERM)
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    """Who began the run may be killed and tell nobody: then this worker keeps its cell and goes, or just goes."""
    parent.join()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(1)


class LocalExecutor(ProcessPoolExecutor):
    """Processes of this machine, which tell how far they are through `shares`."""

    def __init__(self, workers: int, context: BaseContext) -> None:
        self.shares = SharePipe()
        super().__init__(workers, mp_context=context, initializer=_begin_worker, initargs=(self.shares.writer,))

    def look(self) -> str:
        """Processes of this machine that are lost end the run."""
        return ""


@contextmanager
def local_executor(workers: int) -> Iterator[LocalExecutor]:
    """Processes of this machine. Whoever leaves by an exception leaves at once; the processes are ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # half a second of processor time, once for all workers
    executor = LocalExecutor(workers, context)
    try:
        yield executor
    except BaseException:
        processes, manager = list((executor._processes or {}).values()), executor._executor_manager_thread
        executor.shutdown(wait=False, cancel_futures=True)
        _end(processes)
        if isinstance(manager, threading.Thread):  # at the interpreter's end it must not be closing its pipe
            manager.join(_PATIENCE)
        executor.shares.close()
        raise
    executor.shutdown()
    executor.shares.close()


def _end(processes: Sequence[BaseProcess]) -> None:
    """They keep a checkpoint and go; who takes too long is killed."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + _PATIENCE
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()


def run_tasks(
    executor: Executor, work: Callable[[TaskT], AnswerT], tasks: Sequence[TaskT], listener: ShareListener
) -> Iterator[AnswerT]:
    """The answers as they come; `listener` is told meanwhile how far they are. Raises `InputError` where workers are
    lost."""
    waiting: set[Future[AnswerT]] = {executor.submit(work, task) for task in tasks}
    try:
        while waiting:
            done, waiting = wait(waiting, timeout=_TICK, return_when=FIRST_COMPLETED)
            if isinstance(executor, TellsShares):
                for key, share in executor.shares.heard():
                    listener.share(key, share)
                if text := executor.look():
                    listener.note(text)
            listener.idle()
            for future in done:
                yield future.result()
    except BrokenExecutor:
        remedy = "use fewer --workers, then --resume"
        raise InputError("a worker was killed, perhaps for its memory", path="--workers", remedy=remedy) from None
    finally:
        for future in waiting:
            future.cancel()
