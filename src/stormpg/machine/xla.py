"""How XLA is told to compile. Importing the library changes nothing for its caller: options are given program by program, and
the one that is not (`fast_loops`) is asked for by the command, or by a call.

Options are undocumented and come and go between versions; a program with one that is unknown is refused. So every
option is tried on an empty program first, and left out where it is not understood.
"""

import functools
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from stormpg.errors import InputError

# JAX's settings for programs kept on the disk: where, from how many seconds of compilation on, how many bytes at most.
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_compilation_cache_max_size")

# For a program that runs once: to compile it fast is to run it fast. On CPUs this halves the wait.
ONCE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

# For a program that runs often. Left alone, LLVM takes half of the vectors of a CPU that has them of 512 bits.
OFTEN = {"xla_cpu_prefer_vector_width": 512}

# A loop of small steps as one function, instead of a call for each of its operations: rollouts are that. It belongs to a table
# of free names, where an unknown one is ignored. XLA reads it when it starts, so it cannot be asked for program by program.
LOOPS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000"
TESTED = ((0, 8), (0, 12))  # the versions of JAX that it was tried with: earlier ones end the process over it


def fast_loops() -> bool:
    """Have XLA compile the loops of rollouts as single functions: on CPUs up to twice as fast. Whether that is in force.

    It adds to XLA_FLAGS in the environment of this process and is for programs that own their process: call it before JAX
    computes anything. The command does. Versions of JAX that it was not tried with are left alone.
    """
    ask_fast_loops()
    return loops_are_fast()


def ask_fast_loops() -> None:
    """The same without an answer, which would start XLA."""
    flags = os.environ.get("XLA_FLAGS", "")
    tested = TESTED[0] <= jax.__version_info__[:2] <= TESTED[1]
    if tested and "xla_backend_extra_options" not in flags and not _started():  # later, only processes from here would have it
        os.environ["XLA_FLAGS"] = f"{flags} {LOOPS}".strip()


def _started() -> bool:
    """Whether JAX has devices already, as far as it tells."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return False
    return backends_are_initialized()


def loops_are_fast() -> bool:
    """Whether this process compiles a loop as one function: asks XLA for a small one, which starts it."""
    loop = lambda x: jax.lax.scan(lambda x, _: (jnp.sin(x), x), x, length=9)
    return "xla_cpu_small_call" in (jax.jit(loop).lower(jnp.zeros(4096)).compile().as_text() or "")


def platform() -> str:
    """What programs are compiled for: cpu, gpu ..."""
    device = getattr(jax.config, "jax_default_device", None)
    return jax.default_backend() if device is None else getattr(device, "platform", device)


def in_force() -> dict[str, bool]:
    """Which of the ways to compile faster programs this process has."""
    options = {name: understood(name, value) for name, value in (ONCE | OFTEN).items()}
    return {"loops as one function": loops_are_fast(), **options}


def keep_programs() -> None:
    """Keep compiled programs on the disk, for other processes: the command does, so that it waits for XLA once.

    They are in the user's cache folder, below STORMPG_CACHE_MB megabytes (1000); what was not used for longest goes first.
    STORMPG_CACHE_MB=0 switches this off. A folder that the user has given to JAX is left as it is.
    """
    megabytes = os.environ.get("STORMPG_CACHE_MB", "1000")
    if not megabytes.isdecimal():
        raise InputError(f"STORMPG_CACHE_MB is {megabytes!r}; expected a whole number of megabytes, or 0 for no cache.")
    if megabytes == "0" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    can_limit = importlib.util.find_spec("filelock") is not None  # JAX wants it for that
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stormpg"
    folder /= "compiled" if can_limit else "compiled-without-limit"
    for file in folder.glob("*-cache") if can_limit else ():
        if not file.with_name(file.name.replace("-cache", "-atime")).exists():  # its process was killed; JAX stumbles on it
            file.unlink(missing_ok=True)
    for name, value in zip(CACHE, (str(folder), 0.2, int(megabytes) * 2**20 if can_limit else -1), strict=True):
        jax.config.update(name, value)


@functools.cache
def understood(name: str, value: Any) -> bool:
    """Whether this version of XLA knows an option."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def known(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if understood(name, value)}


class Program:
    """jax.jit with such of the options as are understood. XLA is asked at the first use, not when the library is imported."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any], static_argnames: tuple[str, ...]) -> None:
        self.function, self.options, self.static_argnames = function, options, static_argnames

    @functools.cached_property
    def jitted(self) -> Any:
        return jax.jit(self.function, static_argnames=self.static_argnames, compiler_options=known(self.options))

    def __call__(self, *arguments: Any) -> Any:
        return self.jitted(*arguments)

    def __getattr__(self, name: str) -> Any:
        """`eval_shape`, `lower` and the like. A program traced for these is not traced again when it is called."""
        if name.startswith("__") or name == "jitted":
            raise AttributeError(name)
        return getattr(self.jitted, name)
