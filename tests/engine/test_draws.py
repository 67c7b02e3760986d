"""The random numbers of an iteration keep the values that stored runs used, and named keys give independent streams."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stormpg.contract import Moment

NAMES = ("coin", "point between", "mixture")


def at(seed: int, iteration: int):
    return Moment(jax.random.key(seed), jnp.asarray(iteration))


@pytest.mark.parametrize(
    ("iteration", "rollout", "subset", "chance"),
    [
        (0, [276534068, 1641862660], [51277378, 3088387524], 0.45345908403396606),
        (5, [2404237077, 3538143308], [1423793741, 2913611770], 0.6420631408691406),
    ],
)
def test_draws_keep_their_values(iteration, rollout, subset, chance):
    """Stored runs can be resumed and repeated only if these numbers never change."""
    found = at(7, iteration)
    np.testing.assert_array_equal(jax.random.key_data(found.key("rollout")), rollout)
    np.testing.assert_array_equal(jax.random.key_data(found.key("subset")), subset)
    assert float(found.uniform("uniform")) == chance


def test_named_keys_are_streams_of_their_own():
    """All keys of different names, iterations and seeds are distinct, and numbers of two streams are uncorrelated."""
    moments = [at(seed, t) for seed in range(3) for t in range(8)]
    keys = [moment.key(name) for moment in moments for name in (*NAMES, "rollout", "subset")]
    keys += [jax.random.fold_in(jax.random.key(seed), 0) for seed in range(3)]  # the key of policy.init
    assert len({tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys}) == len(keys) == 123

    number = lambda t, name: jax.random.normal(at(0, t).key(name))
    numbers = [jax.vmap(partial(number, name=name))(jnp.arange(400)) for name in ("rollout", *NAMES)]
    for one, other in itertools.combinations(numbers, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.15  # three standard deviations of 400 independent pairs


def test_a_named_key_is_the_same_in_a_program():
    """The key is the same traced or not, alone or in a batch of runs, on every machine and in every process."""
    key = lambda seed, t: jax.random.key_data(at(seed, t).key("coin"))
    found = jax.jit(jax.vmap(key))(jnp.array([3, 4]), jnp.array([2, 9]))
    np.testing.assert_array_equal(found, [key(3, 2), key(4, 9)])
    np.testing.assert_array_equal(found[0], [2571229334, 10147833])
