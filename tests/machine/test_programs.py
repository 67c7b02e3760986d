"""Compiled programs: kept for the latest shapes, released for earlier ones."""

import gc

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.machine import xla
from stormpg.machine.xla import DEFAULTS, Program


def alive() -> int:
    gc.collect()
    return len(jax.devices("cpu")[0].client.live_executables())


def test_programs_of_past_shapes_are_released(monkeypatch):
    monkeypatch.setattr(xla, "KEPT", 8)  # as outside the tests
    doubled = Program(lambda x: 2 * x, DEFAULTS, ())
    before = alive()
    for n in range(1, 31):
        np.testing.assert_array_equal(doubled(np.ones(n)), np.full(n, 2.0))
    assert len(doubled.kept) == xla.KEPT
    assert alive() - before <= xla.KEPT


def test_a_shape_in_use_is_compiled_once():
    traced = []

    def add(x, n):
        traced.append((x.shape, n))
        return x + n

    program = Program(add, DEFAULTS, ("n",))
    for _ in range(3):
        assert program(jnp.ones(2), 1).sum() == 4
        assert program(jnp.ones(3), 1).sum() == 6
        assert program(jnp.ones(2), 2).sum() == 6
    assert traced == [((2,), 1), ((3,), 1), ((2,), 2)]
    program.lower(jnp.ones(5), 1)
    program(jnp.ones(5), 1)
    assert traced[3:] == [((5,), 1)]
