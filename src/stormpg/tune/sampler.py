"""How Optuna chooses the settings of the next trial."""

from collections.abc import Mapping
from typing import Any


def sampler(seed: int, first: Mapping[str, Any] | None = None) -> Any:
    """Return the sampler of one trial. `first`: settings that it must take, for the first trial of a search."""
    import optuna

    # With `constant_liar` the trials of a generation, whose results are not known yet, avoid each other.
    tpe = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    return tpe if first is None else optuna.samplers.PartialFixedSampler(dict(first), tpe)
