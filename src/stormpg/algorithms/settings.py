"""The table of all settings: symbol, meaning, and the range over which each is tuned.

It feeds the help of the command, `stormpg list`, the pages of the algorithms and the search spaces. Defaults are those of the
constructors: they differ between algorithms.
"""

import inspect
from typing import Any, NamedTuple

from stormpg.algorithms.registry import ALGORITHMS


class Range(NamedTuple):
    """The numbers, or the whole numbers, from `low` to `high`; `log`: sampled on a logarithmic scale."""

    low: float
    high: float
    log: bool = False


class Around(NamedTuple):
    """A range relative to the default: the size of a step depends on its kind (of Adam, of a given length, plain)."""

    low: float = 0.03
    high: float = 10.0


class Choices(NamedTuple):
    """A list of values. Each value of a setting that is not a float is another shape, with its own compiled program."""

    values: tuple[Any, ...]


class Setting(NamedTuple):
    """A setting of algorithms. `values`: the names that it may have, if it is a name."""

    meaning: str
    symbol: str = ""
    tuned: Range | Around | Choices | None = None
    values: str = ""

    @property
    def text(self) -> str:
        """Symbol, meaning and values, as a sentence without a full stop."""
        symbol = f"{self.symbol}: " if self.symbol else ""
        return f"{symbol}{self.meaning}{f' ({self.values})' if self.values else ''}"


# The order is that in which `spread_out` assigns the dimensions of its sequence.
# Few batch sizes are tuned, because each needs its own compiled program.
SETTINGS: dict[str, Setting] = {
    "eta": Setting("step size", "η", Around()),
    "alpha": Setting("weight of the new estimate; 1: no memory", "α", Range(0.05, 1.0, log=True)),
    "S0": Setting("trajectories of a large batch", "", Choices((10, 25))),
    "B": Setting("trajectories of a small batch", "", Choices((5, 10))),
    "m": Setting("small batches after each large one", "", Choices((3, 10))),
    "gamma": Setting("discount", "γ"),
    "baseline": Setting("what is subtracted from the signal", "b_h", values="time, none, optimal; pgt also value"),
    "optimizer": Setting("any optax optimiser", values="adam, sgd, rmsprop ..."),
    "decay": Setting("η is multiplied by it every decay_every iterations", "", Range(0.5, 1.0)),
    "decay_every": Setting("iterations for one decay of η"),
    "adaptive": Setting("the inner loop may end early (Papini et al. 2018)"),
    "two_optimizers": Setting("snapshots have an optimiser of their own (Papini et al. 2018)"),
    "inner_rate": Setting("share of η for inner steps, with two_optimizers"),
    "self_normalised": Setting("divide importance weights by their mean over the batch"),
    "delta": Setting(
        "limit of a step: KL divergence (svrpo), length (tsivr-pg), nats for 1000 steps (window-npg)", "δ", Around()
    ),
    "damping": Setting("added to the diagonal of the Fisher matrix"),
    "K": Setting("number of batches in the window"),
    "lam": Setting("λ of generalised advantage estimation", "λ"),
    "kappa": Setting("trust region in nats for an episode", "κ", Range(0.3, 10.0, log=True)),
    "critic_share": Setting("prior share of the estimate with a value function", "", Range(0.1, 0.9)),
    "c": Setting("factor of the rule for α", "", Around()),
    "w": Setting("constant in the rule for η", "", Range(1.0, 100.0, log=True)),
    "k": Setting("numerator of the share of a mirror step that is taken"),
    "factor": Setting("factor of the accumulated norms in the rule for η"),
    "floor": Setting("smallest α"),
    "weight_low": Setting("smallest importance weight"),
    "weight_high": Setting("largest importance weight"),
    "largest": Setting("largest component of a step's direction"),
    "mirror": Setting("mirror map", values="euclidean, diagonal, p-norm"),
    "norm": Setting("p of the mirror map p-norm", "p"),
    "power": Setting("exponent of the accumulated norms of g", "p"),
    "a0": Setting("scale of the differences that α follows", "a_0"),
    "b0": Setting("constant in the rule for η", "b_0"),
    "norms": Setting("let α follow the norms of estimates (META-STORM-SG)"),
    "scale": Setting("factor of the correction", "γ", Range(0.01, 1.0, log=True)),
    "radius": Setting("norm to which the corrected estimate is shortened"),
    "exact": Setting("evaluate the correction on the same batch"),
    "p": Setting("probability of a large batch", "p", Range(0.1, 0.9)),
    "b": Setting("probability that a trajectory is sampled at the reference", "b", Range(0.1, 0.7)),
    "penalty": Setting("η λ of the L2 penalty"),
    "share": Setting("share of the new parameters in the average"),
    "restart": Setting("small iterations before the next large batch; 0: never"),
    "failure": Setting("probability with which the bound may fail", "δ"),
    "iterations": Setting("ascents on each batch"),
}
ONE_SIZE = Choices((5, 10, 25))  # of S0, if all batches have S0 trajectories


def tuned_values(algorithm: str) -> dict[str, Range | Choices]:
    """The settings of an algorithm that are tuned, with their values."""
    parameters = inspect.signature(ALGORITHMS[algorithm]).parameters
    found: dict[str, Range | Choices] = {}
    for name, setting in SETTINGS.items():
        if name in parameters and setting.tuned is not None:
            tuned, default = setting.tuned, parameters[name].default
            found[name] = Range(tuned.low * default, tuned.high * default, log=True) if isinstance(tuned, Around) else tuned
    return found if "B" in parameters or "S0" not in parameters else {**found, "S0": ONE_SIZE}


def float_ranges(algorithm: str) -> dict[str, Range]:
    """The float settings of an algorithm that are tuned, with their ranges."""
    return {name: values for name, values in tuned_values(algorithm).items() if isinstance(values, Range)}
