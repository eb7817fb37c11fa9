"""Cells on processes of this machine, or on remote workers (`dask_client`).

The seam is `concurrent.futures.Executor`; a task is a scenario and the key of a cell, and its answer is bytes. A cell's
result depends on nothing else, so it does not matter which process makes it, or in which order.
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

from podslice.fleet.engine.run import rare_collections, run_cell
from podslice.fleet.engine.shapes import WHOLE_GPU
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.codec import CellOutcome, ClassFacts, ShapeFacts, encode
from podslice.fleet.scenario.scenario_file import scenario_from_data
from podslice.fleet.workers.checkpoint_file import CheckpointFile, stop_worker_at
from podslice.fleet.workers.progress import (
    ProgressListener,
    ProgressPipe,
    ProgressReporter,
    Report,
    ReportsProgress,
    report_through,
)
from podslice.values.errors import InputError, PodsliceError
from podslice.version import running_version

_PATIENCE = 2.0
"""Seconds that workers have to write a checkpoint when they are to stop."""
TaskT = TypeVar("TaskT")
AnswerT = TypeVar("AnswerT")
_TICK = 0.25
"""Seconds of waiting after which the listener is called although nothing happened."""


class Task(NamedTuple):
    """One cell to simulate.

    - `scenario`: JSON; `folder`: where its files are, which remote workers set.
    - `verify`: as of `CellOptions`, None for the default.
    - `checkpoint`: path of the checkpoint, "" for none; `identity`: of the scenario.
    - `release`: of podslice, where the worker may have another one.
    """

    scenario: str
    folder: str
    key: str
    verify: int | None = None
    checkpoint: str = ""
    identity: str = ""
    release: str = ""


class CellAnswer(NamedTuple):
    """A cell's outcome as bytes, or in a line why there is none (`problem`); `warning`: a line about a cell that has
    one."""

    key: str
    data: bytes
    summary: Mapping[str, int]
    problem: str = ""
    warning: str = ""


def simulate(task: Task, report: Report | None = None) -> CellAnswer:
    """Simulate a cell, or the rest of one that has a checkpoint. Without `report` the process' own way to report is
    used."""
    if task.release not in ("", running_version()):
        problem = f"its worker has podslice {running_version()} and the run {task.release}: install the same there"
        return CellAnswer(task.key, b"", {}, problem)
    checkpoint = CheckpointFile(Path(task.checkpoint), task.identity) if task.checkpoint else None
    saved, problem = checkpoint.load() if checkpoint else (b"", "")
    warning = f"the checkpoint of cell {task.key} {problem}; it begins anew" if problem else ""
    try:
        study = load_study(task.scenario, task.folder)
        progress = ProgressReporter(task.key, report)
        outcome = simulate_cell(study, task.key, task.verify, saved=saved, checkpoint=checkpoint, progress=progress)
    except PodsliceError as error:
        return CellAnswer(task.key, b"", {}, str(error))
    return CellAnswer(task.key, encode(outcome), outcome.result.summary, warning=warning)


def simulate_cell(
    study: Study,
    key: str,
    verify: int | None = None,
    *,
    saved: bytes = b"",
    checkpoint: CheckpointFile | None = None,
    progress: Callable[[float], None] | None = None,
) -> CellOutcome:
    """Return the outcome of the cell with this key; `progress` as of `run_cell`. Raises `InputError` and
    `ClassStartError`."""
    cell = next(one for one in study.cells if one.key == key)
    made = study.build(cell)
    options = made.options if verify is None else replace(made.options, verify=verify)
    with rare_collections(), checkpoint.while_running() if checkpoint else nullcontext():
        offer = checkpoint.offer if checkpoint else None
        result = run_cell(made.fleet, made.workload, options, made.seed, progress=progress, offer=offer, saved=saved)
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
def load_study(scenario: str, folder: str) -> Study:
    """Return the study of a scenario (JSON) whose files are in a folder; a worker reads it once. Raises
    `InputError`."""
    return Study(scenario_from_data(json.loads(scenario), "scenario"), Path(folder))


def _begin_worker(shares: Connection | None = None) -> None:
    """Set up a worker process. Ctrl-C is left to the process that started the run, which ends its workers."""
    if shares is not None:
        report_through(shares)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop_worker_at(signal.SIGTERM)
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: BaseProcess) -> None:
    """End this worker when its parent is gone, which may be killed without a signal to its workers; with a checkpoint
    if there is time."""
    parent.join()
    # A signal, so that the handler of the main thread writes the checkpoint between two events of the cell.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(1)


class LocalExecutor(ProcessPoolExecutor):
    """Processes of this machine that report progress through `shares`."""

    def __init__(self, workers: int, context: BaseContext) -> None:
        self.shares = ProgressPipe()
        super().__init__(workers, mp_context=context, initializer=_begin_worker, initargs=(self.shares.writer,))

    def check_workers(self) -> str:
        """Return "": losing a process of this machine ends the run."""
        return ""


@contextmanager
def local_executor(workers: int) -> Iterator[LocalExecutor]:
    """Yield processes of this machine. An exception within the context ends the processes at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # half a second of processor time, once for all workers
    executor = LocalExecutor(workers, context)
    try:
        yield executor
    except BaseException:
        # `ProcessPoolExecutor` has no public way to end running tasks.
        processes, manager = list((executor._processes or {}).values()), executor._executor_manager_thread
        executor.shutdown(wait=False, cancel_futures=True)
        _end_processes(processes)
        if isinstance(manager, threading.Thread):  # at the interpreter's end it must not be closing its pipe
            manager.join(_PATIENCE)
        executor.shares.close()
        raise
    executor.shutdown()
    executor.shares.close()


def _end_processes(processes: Sequence[BaseProcess]) -> None:
    """Let processes write their checkpoints and exit; kill those that take too long."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + _PATIENCE
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()


def run_tasks(
    executor: Executor, work: Callable[[TaskT], AnswerT], tasks: Sequence[TaskT], listener: ProgressListener
) -> Iterator[AnswerT]:
    """Yield answers as they come, and report progress to `listener` meanwhile. Raises `InputError` where workers are
    lost."""
    waiting: set[Future[AnswerT]] = {executor.submit(work, task) for task in tasks}
    try:
        while waiting:
            done, waiting = wait(waiting, timeout=_TICK, return_when=FIRST_COMPLETED)
            if isinstance(executor, ReportsProgress):
                for key, share in executor.shares.read_new():
                    listener.report(key, share)
                if text := executor.check_workers():
                    listener.note(text)
            listener.tick()
            for future in done:
                yield future.result()
    except BrokenExecutor:
        remedy = "use fewer --workers, then --resume"
        raise InputError("a worker was killed, perhaps for its memory", path="--workers", remedy=remedy) from None
    finally:
        for future in waiting:
            future.cancel()
