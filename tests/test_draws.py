"""The random numbers of an iteration: those of every stored run, and room for more."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg.engine.iteration import begin, draws, named_key

NAMES = ("coin", "point between", "mixture")


def at(seed: int, iteration: int):
    return begin(stormpg.softmax_table(2, 2), stormpg.storm_pg(), seed)._replace(iteration=jnp.asarray(iteration))


@pytest.mark.parametrize(
    ("iteration", "rollout", "subset", "chance"),
    [
        (0, [276534068, 1641862660], [51277378, 3088387524], 0.45345908403396606),
        (5, [2404237077, 3538143308], [1423793741, 2913611770], 0.6420631408691406),
    ],
)
def test_draws_keep_their_values(iteration, rollout, subset, chance):
    """Stored runs can be resumed and repeated only as long as these numbers stay as they are."""
    found = draws(at(7, iteration))
    np.testing.assert_array_equal(jax.random.key_data(found.rollout), rollout)
    np.testing.assert_array_equal(jax.random.key_data(found.subset), subset)
    assert float(found.chance) == chance


def test_named_keys_are_streams_of_their_own():
    """No key occurs twice among names, iterations and seeds, nor among the draws; numbers of two streams do not correlate."""
    states = [at(seed, t) for seed in range(3) for t in range(8)]
    keys = [named_key(state, name) for state in states for name in NAMES]
    keys += [key for state in states for key in draws(state)[:2]]
    keys += [jax.random.fold_in(jax.random.key(seed), 0) for seed in range(3)]  # of the policy's start
    assert len({tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys}) == len(keys) == 123

    start, functions = at(0, 0), [lambda state: draws(state).rollout, *(partial(named_key, name=name) for name in NAMES)]
    number = lambda t, function: jax.random.normal(function(start._replace(iteration=t)))
    numbers = [jax.vmap(partial(number, function=function))(jnp.arange(400)) for function in functions]
    for one, other in itertools.combinations(numbers, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.15  # three standard deviations of 400 independent pairs


def test_a_named_key_is_the_same_in_a_program():
    """Traced or not, alone or in a batch of runs; and the same on every machine and in every process."""
    states = [at(3, 2), at(4, 9)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    found = jax.random.key_data(jax.jit(jax.vmap(lambda state: named_key(state, "coin")))(stacked))
    np.testing.assert_array_equal(found, [jax.random.key_data(named_key(state, "coin")) for state in states])
    np.testing.assert_array_equal(found[0], [2571229334, 10147833])
