"""How XLA is told to compile: program by program. No environment variable of the caller's is read or set.

Options are undocumented and come and go between versions; a program with one that is unknown is refused. So every
option is tried on an empty program first, and left out where it is not understood.
"""

import contextvars
import functools
import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from stormpg.errors import InputError

# JAX's settings for programs kept on the disk: where, from how many seconds of compilation on, how many bytes at most.
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_compilation_cache_max_size")

# For a program that runs once: to compile it fast is to run it fast. On CPUs this halves the wait.
ONCE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

# For a program that runs often. Left alone, LLVM takes half of the vectors of a CPU that has them of 512 bits.
OFTEN = {"xla_cpu_prefer_vector_width": 512}

# For a loop of small steps: XLA makes one function of it, instead of a call for each of its operations. It is a mark on the
# call of a function, which a version that does not know it ignores.
ONE_FUNCTION = {"inlineable": "false", "xla_cpu_small_call": "true"}

_marking = contextvars.ContextVar("marking", default=False)  # whether a `Program` is being traced that may have such marks


def as_one_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, a loop of small steps such as a rollout, in the form that a CPU runs fastest. Elsewhere as it is.

    A loop with a product of matrices in it is left alone: XLA gives that to a library, which such a function cannot call.
    """
    if not _marking.get() or platform() != "cpu":
        return function
    unmarked = dict.fromkeys(ONE_FUNCTION)

    def inside(*arguments: Any) -> Any:
        with set_xla_metadata(**unmarked):  # what the loop does needs no mark
            return function(*arguments)

    def call(*arguments: Any) -> Any:
        if any(map(_is_wide_product, _equations(jax.make_jaxpr(function)(*arguments).jaxpr))):
            return function(*arguments)
        with set_xla_metadata(**ONE_FUNCTION):
            return jax.jit(inside)(*arguments)

    return call


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a traced function, those of the functions that it calls too."""
    for equation in jaxpr.eqns:
        yield equation
        for part in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def _is_wide_product(equation: Any) -> bool:
    if equation.primitive.name != "dot_general":
        return False
    (_, contracted), (_, batch) = equation.params["dimension_numbers"]
    shape = equation.invars[1].aval.shape
    return math.prod(size for axis, size in enumerate(shape) if axis not in (*contracted, *batch)) > 1


def platform() -> str:
    """What programs are compiled for: cpu, gpu ..."""
    device = getattr(jax.config, "jax_default_device", None)
    return jax.default_backend() if device is None else getattr(device, "platform", device)


def in_force() -> dict[str, bool]:
    """Which of the ways to compile faster programs this version of XLA takes. They are asked for program by program."""
    loop = lambda x: jax.lax.scan(lambda x, _: (jnp.sin(x), x), x, length=3)
    program = Program(lambda x: as_one_function(loop)(x), {}, ()).lower(jnp.zeros(3)).compile().as_text() or ""
    options = {name: understood(name, value) for name, value in (ONCE | OFTEN).items()}
    return {"xla_cpu_small_call": "xla_cpu_small_call" in program, **options}


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
    """jax.jit with such of the options as are understood, and with marks on its loops as far as XLA can compile them.

    XLA is asked at the first use, not when the library is imported.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any], static_argnames: tuple[str, ...]) -> None:
        self.function, self.options, self.static_argnames = function, options, static_argnames
        self.marks = True

    @functools.cached_property
    def jitted(self) -> Any:
        marks = self.marks

        @functools.wraps(self.function)
        def traced(*arguments: Any) -> Any:
            token = _marking.set(marks)
            try:
                return self.function(*arguments)
            finally:
                _marking.reset(token)

        return jax.jit(traced, static_argnames=self.static_argnames, compiler_options=known(self.options))

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self.jitted(*arguments)
        except jax.errors.JaxRuntimeError as error:
            if not self.marks or "UNIMPLEMENTED" not in str(error):
                raise
        self.marks = False  # a policy of the user's may hold what XLA cannot put into one function
        del self.jitted
        return self.jitted(*arguments)

    def __getattr__(self, name: str) -> Any:
        """`eval_shape`, `lower` and the like. A program traced for these is not traced again when it is called."""
        if name.startswith("__") or name == "jitted":
            raise AttributeError(name)
        return getattr(self.jitted, name)
