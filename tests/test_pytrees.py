import jax
import jax.numpy as jnp
import pytest

from stormpg.pytrees import all_finite


@pytest.mark.parametrize("platform", ["cpu", "gpu"])  # the leaves are checked together or one by one
def test_whether_all_numbers_of_a_tree_are_finite(platform, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    fine = {"matrix": jnp.ones((2, 3)), "number": jnp.zeros(()), "count": jnp.arange(2)}
    assert all_finite(fine)
    assert all_finite({"count": jnp.arange(2)})
    assert all_finite(())
    for bad in (jnp.inf, -jnp.inf, jnp.nan):
        assert not all_finite({**fine, "number": jnp.asarray(bad)})
        assert not all_finite({**fine, "matrix": fine["matrix"].at[1, 2].set(bad)})
