"""C compiled on this machine, and its functions as targets of `jax.ffi`.

A compiled library is kept in the user's cache folder under a hash of all that it depends on, and built again if it is missing.
"""

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax
import jax.ffi

from stormpg.kernels.scalar_code import Unfit
from stormpg.machine.xla import cache_folder

# No -ffast-math: a NaN has to stay one, and a sum has one order. -fno-builtin: GCC would join sin and cos of the same number
# into a function that has no form for vectors.
FLAGS: tuple[str, ...] = (
    *("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-fno-builtin-sinf", "-fno-builtin-cosf", "-fPIC", "-shared"),
    *(("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()),
)
KEPT = 200  # libraries in the cache folder, of some 30 kB each

PREFIX = "stormpg_"  # of the names of all targets

_registered: set[str] = set()
_loaded: dict[str, Future[ctypes.CDLL]] = {}  # by hash; never unloaded, because compiled programs point into them
_lock = threading.Lock()


class Unbuilt(Unfit):
    """The compiler refused."""


@functools.cache
def compiler() -> str | None:
    """The C compiler of this machine: CC, gcc or clang."""
    if os.name != "posix":
        return None
    return next((found for name in (os.environ.get("CC"), "gcc", "clang") if name and (found := shutil.which(name))), None)


@functools.cache
def machine() -> str:
    """All that a compiled library depends on, besides its source: compiler, processor, JAX."""
    version = subprocess.run([compiler() or "", "--version"], capture_output=True, text=True, check=False).stdout
    processor = Path("/proc/cpuinfo")
    lines = processor.read_text().splitlines() if processor.exists() else []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return repr((version, FLAGS, platform.machine(), features, jax.__version__))


@functools.cache
def folder() -> Path:
    """The folder of the libraries: in the user's cache folder, or a temporary one if that cannot be written."""
    kept = cache_folder() / "kernels"
    try:
        kept.mkdir(parents=True, exist_ok=True)
        if os.access(kept, os.W_OK):
            return kept
    except OSError:
        pass
    temporary = tempfile.TemporaryDirectory(prefix="stormpg-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)


def prepare(source: str) -> tuple[str, Future[ctypes.CDLL]]:
    """Start to compile C, unless that has been done. Returns its hash and the library that will be there."""
    key = hashlib.sha256(f"{machine()}\n{source}".encode()).hexdigest()[:20]
    with _lock:
        if key not in _loaded:
            pool = ThreadPoolExecutor(1, "stormpg-compiler")
            _loaded[key] = pool.submit(loaded, source, key)
            pool.shutdown(wait=False)  # its thread ends with the library, and not with the process
        return key, _loaded[key]


def target(source: str, function: str) -> str:
    """Compile C and register one of its functions with JAX. Returns the name for `jax.ffi.ffi_call`.

    Raises Unbuilt if the compiler refuses.
    """
    key, library = prepare(source)
    name = f"{PREFIX}{function}_{key}"
    handler = getattr(library.result(), function)
    with _lock:
        if name not in _registered:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")
            _registered.add(name)
    return name


def loaded(source: str, key: str) -> ctypes.CDLL:
    """The library of this source in this process."""
    try:
        return ctypes.CDLL(str(built(source, key)))
    except OSError as error:  # a full disk, a damaged file ...
        raise Unbuilt(f"the library {key}.so in {folder()} cannot be used ({error}); delete it if it is there") from error


def built(source: str, key: str) -> Path:
    """The library of this source, compiled unless it is there."""
    library = folder() / f"{key}.so"
    if library.exists():
        return library
    path = compiler()
    if path is None:
        raise Unbuilt("there is no C compiler")
    with tempfile.TemporaryDirectory(dir=folder()) as part:
        made = Path(part) / "library.so"
        command = [path, *FLAGS, f"-I{jax.ffi.include_dir()}", "-x", "c", "-", "-o", str(made), "-lm"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unbuilt(f"{path} refused: {done.stderr.strip()[:300]}")
        made.replace(library)
    for old in sorted(folder().glob("*.so"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
    return library
