"""Connection to a Ray cluster: a new one on this machine, on the loopback interface only, or an existing one."""

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
from stormpg.machine import retries
from stormpg.machine.blocks import cores

HERE = "ray"
SCHEME = "ray://"
PATIENCE = 5.0  # seconds to wait for a connection

# Anyone who can reach a port of Ray can run any program as its user. Ray listens on all interfaces of the machine unless
# clusters are disabled.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def check_address(where: str) -> str:
    """Return `where`, which is `ray` or `ray://HOST:PORT`. Raise InputError if it is neither, or if nothing answers there."""
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
    """Import and return Ray, after setting the variables that it reads on import."""
    for name, value in (QUIET | (LOOPBACK if where == HERE else {})).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise InputError('Ray is not installed: pip install "stormpg[ray]".') from None
    if where == HERE:  # if Ray was imported before, the variables above had no effect
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    return ray


@contextlib.contextmanager
def cluster(where: str) -> Iterator[Any]:
    """Yield Ray, connected to `where`, and shut it down at the end. An already initialised Ray is used and left running."""
    ray = imported(where)
    if ray.is_initialized():
        yield ray
        return
    check_address(where)
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    local: dict[str, Any] = {"num_cpus": cores(), "include_dashboard": False}
    # JAX warns about forks. Those that start Ray are harmless, because they run another program immediately.
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning), own_handler():
        for attempt in reversed(range(retries.CONNECTIONS)):
            try:
                ray.init("local", **local, **quiet) if where == HERE else ray.init(where, **quiet)
                break
            except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
                if not attempt or not isinstance(error, ConnectionError):
                    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                    raise InputError(f"cannot use the Ray cluster at {where}: {reason}") from None
                time.sleep(1)  # the server starts a process for each client, which may be slow the first time
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def own_handler() -> Iterator[None]:
    """Restore the handler of SIGTERM at the end: Ray's own handler would exit before results are saved."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
