"""Cells on the workers of an existing Dask cluster. Only this module and `dask_worker`, which runs on the workers,
depend on Dask.

A task is a coroutine of the worker that waits for a helper process. The scenario's files are one result of the cluster
on which all tasks depend: they are sent once, go from worker to worker, and are recreated where the workers that had
them are gone.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from podslice.extras import install_extra
from podslice.fleet.workers.dask_worker import TOPIC, cancel_run, quiet_scheduler, run_on_worker
from podslice.values.errors import InputError

_PATIENCE = 2.0
"""Seconds the cluster has to receive the cancellation of a run."""
_LOOK = 10.0
"""Seconds between two checks for workers."""
_SETTINGS = {
    "distributed.client.scheduler-info-interval": "30s",
    "distributed.admin.large-graph-warning-threshold": "1GB",  # the files of a scenario are in it, once
}
"""Settings of a run's client that reduce its background work."""
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ucx|wss?)://)?(?:[^\s:/\[\]]+|\[[0-9a-fA-F:.%]+\]):\d{1,5}/?\Z")
"""Address of a scheduler. A client for anything else takes twenty seconds to end, and prints tracebacks."""
FilePairs = Sequence[tuple[str, bytes]]


@contextmanager
def dask_executor(address: str, files: FilePairs, depth: int = 0) -> Iterator[DaskExecutor]:
    """Yield an executor on the workers of a Dask cluster.

    `files`: names and contents that all tasks need in their `folder`; `depth`: how many folders a name may go up.
    Raises `InputError` where there is no cluster.
    """
    remedy = "dask scheduler prints its address, such as tcp://host:8786"
    if not _ADDRESS.match(address):
        raise InputError("is not an address of a scheduler", path=f"--dask {address}", remedy=remedy)
    try:
        dask, distributed = importlib.import_module("dask"), importlib.import_module("distributed")
    except ImportError:
        raise InputError("Dask needs distributed", path="--dask", remedy=install_extra("fleet-dask")) from None
    with dask.config.set(_SETTINGS), _without_logs():
        try:
            # Not the default client: that would take over the Dask calls of a program that uses this as a library.
            client = distributed.Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            text = str(error).splitlines()[0]
            raise InputError(f"no scheduler answers: {text}", path=f"--dask {address}", remedy=remedy) from None
        try:
            if not client.scheduler_info().get("workers"):
                raise InputError("has no worker", path=f"--dask {address}", remedy=f"start some: dask worker {address}")
            executor = DaskExecutor(client, address, files, depth)
            try:
                yield executor
            # KeyboardInterrupt as well: cells that no one waits for would keep the cluster's workers busy.
            except BaseException:
                executor.cancel()
                raise
        finally:
            client.close(timeout=_PATIENCE)


def _file_result(digest: str, data: bytes) -> tuple[str, bytes]:
    """Return the files, as a result of the cluster."""
    return digest, data


@contextmanager
def _without_logs() -> Iterator[None]:
    """Silence Dask's client within the context: a lost scheduler is reported in one line instead."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.core")]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)


def translate_error(problem: BaseException, address: str) -> BaseException:
    """Return an `InputError` in one line where the cluster is at fault, and the problem itself where the task is."""
    line = str(problem).partition("\n")[0][:200]
    if isinstance(problem, CancelledError):
        found = "the scheduler is gone", "--resume goes on with another one"
    elif isinstance(problem, BrokenExecutor):
        found = "the process of a cell was killed, perhaps for its memory", "give workers fewer threads, then --resume"
    elif isinstance(problem, ImportError) or "deserializ" in line:
        remedy = "install podslice with its extra fleet where the scheduler and the workers are"
        found = f"the cluster cannot simulate: {line}", remedy
    elif type(problem).__module__.partition(".")[0] == "distributed":
        found = f"a cell ended its workers, or these lost it: {line}", "look at the workers' logs, then --resume"
    else:
        return problem
    return InputError(found[0], path=f"--dask {address}", remedy=found[1])


class DaskProgress:
    """Progress of cells on remote workers, received as events of the cluster; those of other runs are dropped."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._reported: SimpleQueue[tuple[str, float]] = SimpleQueue()

    def receive(self, event: tuple[float, Any]) -> None:
        """Queue the progress in an event."""
        _, message = event
        if isinstance(message, dict) and message.get("run") == self._run:
            self._reported.put((str(message["key"]), float(message["share"])))

    def read_new(self) -> Iterable[tuple[str, float]]:
        """Return the keys of cells and their shares reported since the last call."""
        with suppress(Empty):
            while True:
                yield self._reported.get_nowait()


class DaskExecutor(Executor):
    """Remote workers, each of which works in helper processes (`run_on_worker`)."""

    def __init__(self, client: Any, address: str, files: FilePairs, depth: int) -> None:
        self._client = client
        self._address = address
        self._workers = client.get_executor(pure=False)
        data = pickle.dumps((depth, tuple(files)))
        # Files of equal content have one key, so runs at the same time share them.
        digest = hashlib.sha256(data).hexdigest()
        self._files = client.submit(_file_result, digest, data, key=f"{TOPIC}-files-{digest}")
        self.run: str = client.id
        self.shares = DaskProgress(self.run)
        client.subscribe_topic(TOPIC, self.shares.receive)
        with suppress(Exception):  # a scheduler may have no podslice, or run nothing for others
            client.run_on_scheduler(quiet_scheduler, self.run)
        self._looked = time.monotonic()
        self._alone = False

    def submit(self, work: Callable[..., Any], /, *tasks: Any, **named: Any) -> Future[Any]:
        """Call a function of one argument on a worker."""
        (task,) = tasks
        answer: Future[Any] = Future()

        def pass_on(done: Future[bytes]) -> None:
            # The caller has cancelled; setting a result now would raise.
            if not answer.set_running_or_notify_cancel():
                return
            problem = CancelledError() if done.cancelled() else done.exception()
            if problem is None:
                answer.set_result(pickle.loads(done.result()))
            else:
                answer.set_exception(translate_error(problem, self._address))

        question = pickle.dumps((work, task))
        self._workers.submit(run_on_worker, self.run, question, self._files).add_done_callback(pass_on)
        return answer

    def check_workers(self) -> str:
        """Return a line when no worker is left, once; checked every ten seconds."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return ""
        self._looked = now
        try:
            alone = not self._client.nthreads()
        except (OSError, TimeoutError):
            return ""
        alone, self._alone = alone and not self._alone, alone
        return f"no worker is left; the run waits for one: dask worker {self._address}" if alone else ""

    def cancel(self) -> None:
        """Cancel the run. Workers that do not answer are not waited for."""
        self._workers.shutdown(wait=False)
        # A daemon thread: workers that do not answer must not keep this process from ending.
        asked = threading.Thread(target=self._cancel_everywhere, daemon=True)
        asked.start()
        asked.join(_PATIENCE)

    def _cancel_everywhere(self) -> None:
        with suppress(Exception):
            self._client.run(cancel_run, self.run, on_error="ignore")
