"""Open an engine by its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from gradverify.run.inprocess import InProcess
from gradverify.run.options import EngineName, EngineOptions
from gradverify.run.pool import LocalPool
from gradverify.run.start_server import ServerError, stop_early
from gradverify.run.task import Engine


def open_engine(options: EngineOptions | None = None) -> Engine:
    """Return the engine that the options name, by default worker processes on this machine.

    It starts to load torch at once. The caller closes the engine. Raises ServerError.
    """
    options = options or EngineOptions()
    return _ENGINES[options.name](options)


def _open_local(options: EngineOptions) -> Engine:
    if options.address is not None:
        raise ServerError("--ray-address names a Ray cluster; give --engine ray too")
    if options.workers == 0:
        stop_early()
        return InProcess()
    pool = LocalPool(_cores() if options.workers is None else options.workers)
    pool.start()
    return pool


def _open_ray(options: EngineOptions) -> Engine:
    if options.workers == 0:
        raise ServerError("-j 0 runs cases in this process, and --engine ray on a cluster; give one of the two")
    from gradverify.run.engines.cluster.engine import RayEngine  # few runs need it

    stop_early()
    engine = RayEngine(workers=options.workers, address=options.address)
    engine.start()
    return engine


_ENGINES: Mapping[EngineName, Callable[[EngineOptions], Engine]] = {
    EngineName.LOCAL: _open_local,
    EngineName.RAY: _open_ray,
}


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
