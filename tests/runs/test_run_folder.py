"""Run folders: values survive a write and a read unchanged."""

import jax
import numpy as np
import polars
import pytest

import stormpg
from stormpg import files
from stormpg.errors import InputError
from stormpg.runs import run_folder


@pytest.fixture(scope="module")
def result():
    return stormpg.train("cartpole-continuous", stormpg.storm_pg(S0=4, B=2), trajectories=10, seeds=[2, 5], horizon=6)


def test_states_come_back_bit_for_bit(result, tmp_path):
    folder = run_folder.save(result, tmp_path / "a" / "run")
    back = files.load_tree(result.states, folder / "state.safetensors")
    assert jax.tree.structure(back) == jax.tree.structure(result.states)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(result.states), strict=True):
        plain = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in (a, b)]
        np.testing.assert_array_equal(*plain)


def test_policies_come_back(result, tmp_path):
    run = run_folder.Run(run_folder.save(result, tmp_path / "run"))
    assert [seed for _, seed, _ in run.iterates("best")] == [2, 5]
    for _, seed, params in run.iterates("uniform"):
        jax.tree.map(np.testing.assert_array_equal, params, result.params("uniform", seed))


def test_metrics_come_back(result, tmp_path):
    folder = run_folder.save(result, tmp_path / "run")
    assert polars.read_parquet(folder / "metrics.parquet").equals(result.metrics)


def test_a_folder_that_holds_a_run_is_refused(result, tmp_path):
    run_folder.save(result, tmp_path)
    with pytest.raises(InputError, match="already holds a run"):
        run_folder.save(result, tmp_path)
    with pytest.raises(InputError, match="already holds a run"):
        stormpg.train("pendulum", out=tmp_path)


def test_other_shapes_are_named(result, tmp_path):
    folder = run_folder.save(result, tmp_path / "run")
    with pytest.raises(InputError, match="holds nothing under 'other'"):
        files.load_tree({"other": np.zeros(3, np.float32)}, folder / "policy.safetensors")
    wrong = jax.tree.map(lambda x: np.zeros((7, *x.shape[1:]), x.dtype), {"last": result.states.params})
    with pytest.raises(InputError, match=r"expected float32\[7"):
        files.load_tree(wrong, folder / "policy.safetensors")


def test_a_policy_of_the_users_own_is_said(tmp_path):
    own = stormpg.gaussian((lambda key: jax.numpy.zeros(4), lambda p, s: (p * s).sum()[None]), 1)
    folder = run_folder.save(
        stormpg.train("cartpole-continuous", stormpg.storm_pg(S0=3, B=2), 5, 1, horizon=4, policy=own), tmp_path / "run"
    )
    with pytest.raises(InputError, match="user's own"):
        run_folder.Run(folder)
