"""A Ray cluster to work on: started on this machine, on the loopback interface alone, or one that is there already."""

import contextlib
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from stormpg.errors import InputError
from stormpg.machine.blocks import cores

HERE = "ray"
SCHEME = "ray://"
PATIENCE = 5.0  # seconds for a first answer
ATTEMPTS = 3  # to connect

# Whoever reaches a port of Ray may run any program as its user. Unless told that it is no cluster, Ray listens on every
# interface of the machine.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def check_address(where: str) -> str:
    """`ray` or `ray://HOST:PORT`, if something answers there."""
    if where == HERE:
        return where
    parts = urlsplit(where)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not where.startswith(SCHEME) or not host or not port:
        raise InputError(f"workers is {where!r}; expected ray, for a cluster on this machine, or ray://HOST:PORT.")
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError as error:
        raise InputError(
            f"no Ray cluster answers at {where} ({error}): start one with `ray start --head --ray-client-server-port {port}`."
        ) from None
    return where


def imported(where: str = HERE) -> Any:
    """Ray, which reads these variables when it is imported."""
    for name, value in (QUIET | (LOOPBACK if where == HERE else {})).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise InputError('Ray is not installed: pip install "stormpg[ray]".') from None
    if where == HERE:  # whoever imported it before us may not have set them
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    return ray


@contextlib.contextmanager
def cluster(where: str) -> Iterator[Any]:
    """Ray, connected to `where`. A cluster that was started for this ends with it; one that is in use already is used."""
    ray = imported(where)
    if ray.is_initialized():
        yield ray
        return
    check_address(where)
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    local: dict[str, Any] = {"num_cpus": cores(), "include_dashboard": False}
    # JAX warns of forks; those that start Ray run another program at once.
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning), own_handler():
        for attempt in reversed(range(ATTEMPTS)):
            try:
                ray.init("local", **local, **quiet) if where == HERE else ray.init(where, **quiet)
                break
            except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
                if not attempt or not isinstance(error, ConnectionError):
                    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                    raise InputError(f"cannot work on the Ray cluster at {where}: {reason}") from None
                time.sleep(1)  # the server starts a process for each client, which may be too slow the first time
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def own_handler() -> Iterator[None]:
    """Keep what is done on SIGTERM: Ray's own handler would leave before anything is saved."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
