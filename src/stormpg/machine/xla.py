"""XLA compiler options and the cache of compiled programs.

Importing the library does not change any global setting: options are set for each program. Global settings (`fast_loops`,
`keep_programs`) are changed only by the command, or by an explicit call.

The options are undocumented and differ between versions of XLA, which rejects a program with an unknown option. Every option is
therefore tried on an empty program first, and omitted if it is unsupported.
"""

import functools
import importlib.util
import inspect
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.errors import InputError

# JAX's settings for its cache on disk: the folder, the minimum compile time in seconds, the maximum size in bytes.
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_compilation_cache_max_size")

# For a program that runs once, where compilation takes most of the time. On CPUs this halves the startup time.
ONCE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

# For a program that runs often. By default, LLVM uses only half of the width of 512-bit vector units.
OFTEN = {"xla_cpu_prefer_vector_width": 512}

DEFAULTS: Mapping[str, Any] = {}  # XLA's own

# For processes that share a GPU: autotuning times kernels, which is useless while other processes use it.
NO_TRIALS = ("xla_gpu_autotune_level", 0)

# Compiles a loop of small steps, such as a rollout, as one function instead of one call per operation. It is one of XLA's extra
# options, of which unknown ones are ignored. XLA reads it at startup, so it cannot be set for each program.
LOOPS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000"
TESTED = ((0, 8), (0, 12))  # the first and last version of JAX it was tested with; earlier versions abort the process


def fast_loops() -> bool:
    """Let XLA compile the loops of rollouts as single functions, up to twice as fast on CPUs. Return whether it is in effect.

    It adds to XLA_FLAGS in the environment of this process, so call it only in a program of your own, before JAX computes
    anything. The command calls it. It does nothing for versions of JAX that it was not tested with.
    """
    ask_fast_loops()
    return loops_are_fast()


def ask_fast_loops() -> None:
    """Set the option of `fast_loops` without checking its effect, because the check would start XLA."""
    flags = os.environ.get("XLA_FLAGS", "")
    tested = TESTED[0] <= jax.__version_info__[:2] <= TESTED[1]
    if tested and "xla_backend_extra_options" not in flags and not _started():  # later, it would affect child processes only
        os.environ["XLA_FLAGS"] = f"{flags} {LOOPS}".strip()


def _started() -> bool:
    """Whether JAX has already initialised its devices; False if JAX does not tell."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return False
    return bool(backends_are_initialized())


def loops_are_fast() -> bool:
    """Whether this process compiles a loop as one function. Compiles a small loop to find out, which starts XLA."""
    loop = lambda x: jax.lax.scan(lambda x, _: (jnp.sin(x), x), x, length=9)
    return "xla_cpu_small_call" in (jax.jit(loop).lower(jnp.zeros(4096)).compile().as_text() or "")


def platform() -> str:
    """Return the platform that programs are compiled for: cpu, gpu ..."""
    device = getattr(jax.config, "jax_default_device", None)
    return jax.default_backend() if device is None else getattr(device, "platform", device)


def in_force() -> dict[str, bool]:
    """Return which of the options above are in effect in this process."""
    options = {name: understood(name, value) for name, value in (ONCE | OFTEN).items()}
    return {"loops as one function": loops_are_fast(), **options}


def keep_programs() -> None:
    """Cache compiled programs on disk for later processes. The command does this to reduce its startup time.

    The cache is in the user's cache folder and limited to STORMPG_CACHE_MB megabytes (default 1000); the least recently used
    programs are removed first. STORMPG_CACHE_MB=0 disables it. If the user has set a cache folder for JAX, nothing is changed.
    """
    megabytes = os.environ.get("STORMPG_CACHE_MB", "1000")
    if not megabytes.isdecimal():
        raise InputError(f"STORMPG_CACHE_MB is {megabytes!r}; expected a whole number of megabytes, or 0 for no cache.")
    if megabytes == "0" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    can_limit = importlib.util.find_spec("filelock") is not None  # JAX needs it to limit the size
    folder = cache_folder() / ("compiled" if can_limit else "compiled-without-limit")
    for file in folder.glob("*-cache") if can_limit else ():
        if not file.with_name(file.name.replace("-cache", "-atime")).exists():  # left by a killed process; JAX would fail
            file.unlink(missing_ok=True)
    for name, value in zip(CACHE, (str(folder), 0.2, int(megabytes) * 2**20 if can_limit else -1), strict=True):
        jax.config.update(name, value)


def cache_folder() -> Path:
    """The user's cache folder for this library."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stormpg"


@functools.cache
def understood(name: str, value: Any) -> bool:
    """Whether this version of XLA supports an option."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are supported."""
    return {name: value for name, value in options.items() if understood(name, value)}


KEPT = 8  # shapes whose compiled programs a `Program` keeps; each has about 30 MB and 800 memory mappings of at most 65,530


class Program:
    """`jax.jit` with the options that are supported. XLA starts at the first use, not when the library is imported.

    Compiled programs of the `KEPT` latest shapes are kept: a process that trains many shapes does not grow.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any], static_argnames: tuple[str, ...]) -> None:
        self.function, self.options, self.static_argnames = function, options, static_argnames
        self.static = [name in static_argnames for name in inspect.signature(function).parameters]
        self.kept: OrderedDict[Any, Any] = OrderedDict()
        self.lock = threading.Lock()
        self.compiled = 0  # times the function was traced

    def __call__(self, *arguments: Any) -> Any:
        return self.of(arguments)(*arguments)

    def lower(self, *arguments: Any) -> Any:
        """As `jax.jit(...).lower`. What this traces is not traced again by a call."""
        return self.of(arguments).lower(*arguments)

    def eval_shape(self, *arguments: Any) -> Any:
        """As `jax.jit(...).eval_shape`."""
        return self.of(arguments).eval_shape(*arguments)

    def of(self, arguments: tuple[Any, ...]) -> Any:
        """The jitted function for arguments of these shapes."""
        traced, tree = jax.tree.flatten([x for x, static in zip(arguments, self.static, strict=True) if not static])
        fixed = tuple(x for x, static in zip(arguments, self.static, strict=True) if static)
        shape = (fixed, tree, tuple((np.shape(x), getattr(x, "dtype", type(x))) for x in traced))
        with self.lock:
            jitted = self.kept.pop(shape, None)
            if jitted is None:
                options = known(self.options)
                jitted = jax.jit(self.renewed(), static_argnames=self.static_argnames, compiler_options=options)
            self.kept[shape] = jitted
            if len(self.kept) > KEPT:
                self.kept.popitem(last=False)
        return jitted

    def renewed(self) -> Callable[..., Any]:
        """The function as a new object: JAX drops its programs with it."""

        @functools.wraps(self.function)
        def function(*arguments: Any) -> Any:
            self.compiled += 1
            return self.function(*arguments)

        return function
