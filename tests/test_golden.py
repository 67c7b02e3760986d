"""The numbers of all algorithms are those of tests/data/golden.npz, which an earlier version has written."""

import numpy as np
import pytest

from tests import golden

pytestmark = pytest.mark.slow

KEPT = np.load(golden.FILE)


def compare(found: dict[str, np.ndarray], name: str) -> None:
    assert found
    # Conjugate gradients amplify the rounding of the tests' compiler options. Without these, SVRPO's numbers are the same bits.
    rtol, atol = (0.02, 0.002) if "svrpo" in name else (1e-9, 1e-11)
    for key, x in found.items():
        np.testing.assert_allclose(x, KEPT[f"{name}/{key}"], rtol=rtol, atol=atol, err_msg=f"{name}: {key}")


@pytest.mark.parametrize("env", golden.ENVIRONMENTS)
@pytest.mark.parametrize("row", golden.ROWS)
def test_ten_iterations(env, row):
    compare(golden.numbers(env, row), f"{env}/{row}")


@pytest.mark.parametrize("env", golden.ENVIRONMENTS)
def test_a_rollout(env):
    compare(golden.trajectories(env), f"{env}/rollout")
