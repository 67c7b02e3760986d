"""How XLA is told to compile.

Options are undocumented and come and go between versions; a program with one that is unknown is refused. So every
option is tried on an empty program first, and left out where it is not understood.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

# For a program that runs once: to compile it fast is to run it fast. On CPUs this halves the wait.
ONCE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@functools.cache
def understood(name: str, value: Any) -> bool:
    """Whether this version of XLA knows an option."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def jit_once(function: Callable[..., Any], static_argnames: tuple[str, ...]) -> Any:
    """jax.jit for a program that runs once. XLA is asked at the first call, not when the library is imported."""

    @functools.cache
    def compiled() -> Any:
        options = {name: value for name, value in ONCE.items() if understood(name, value)}
        return jax.jit(function, static_argnames=static_argnames, compiler_options=options)

    return functools.wraps(function)(lambda *arguments: compiled()(*arguments))
