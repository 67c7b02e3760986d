"""A Ray cluster to work on: started on this machine, on the loopback interface alone, or one that is there already."""

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from stormpg.errors import InputError
from stormpg.parallel import cores

HERE = "ray"
SCHEME = "ray://"
PATIENCE = 5.0  # seconds for a first answer

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


@contextlib.contextmanager
def cluster(where: str) -> Iterator[Any]:
    """Ray, connected to `where`. A cluster that was started for this ends with it; one that is in use already is used."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    if where == HERE:
        os.environ.update({name: value for name, value in LOOPBACK.items() if name not in os.environ})
    try:
        import ray
    except ImportError:
        raise InputError('Ray is not installed: pip install "stormpg[ray]".') from None
    if ray.is_initialized():
        yield ray
        return
    check_address(where)
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if where == HERE:
            ray.init(address="local", num_cpus=cores(), include_dashboard=False, **quiet)
        else:
            ray.init(where, **quiet)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise InputError(f"cannot work on the Ray cluster at {where}: {error}.") from None
    try:
        yield ray
    finally:
        ray.shutdown()
