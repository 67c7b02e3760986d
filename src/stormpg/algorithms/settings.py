"""The table of all settings: symbol, meaning, the values that are allowed, and those over which each is tuned.

It feeds the docstrings of the constructors, the help of the command, `stormpg list`, the site and the search spaces. Defaults
are those of the constructors: they differ between algorithms.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


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


class Allowed(NamedTuple):
    """The numbers from `low` to `high`; `open`: which ends do not belong to them."""

    low: float
    high: float = math.inf
    open: str = ""  # "low", "high" or "low high"

    @property
    def text(self) -> str:
        """In words: "above 0", "at least 1", "from 0 to 1", "above 0, at most 1"."""
        low, high, ends = f"{self.low:g}", f"{self.high:g}", self.open.split()
        if not ends and math.isfinite(self.high):
            return f"from {low} to {high}"
        low = f"above {low}" if "low" in ends else f"at least {low}"
        high = f"below {high}" if "high" in ends else f"at most {high}"
        return low if math.isinf(self.high) else f"{low}, {high}"

    @property
    def short(self) -> str:
        """The same for the help of the command: ">0", "≥0", "0 to 1", "above 0 to 1"."""
        if math.isinf(self.high):
            return f"{'>' if 'low' in self.open else '≥'}{self.low:g}"
        low, high = f"{'above ' * ('low' in self.open)}{self.low:g}", f"{'below ' * ('high' in self.open)}{self.high:g}"
        return f"{low} to {high}"


POSITIVE = Allowed(0, open="low")
COUNT = Allowed(1)  # whole numbers
SHARE = Allowed(0, 1)


class Setting(NamedTuple):
    """A setting of algorithms. `values`: the names that it may have, if it is a name."""

    meaning: str
    symbol: str = ""
    allowed: Allowed | None = None
    tuned: Range | Around | Choices | None = None
    values: str = ""

    @property
    def text(self) -> str:
        """Symbol, meaning and values, as a sentence without a full stop."""
        symbol = f"{self.symbol}: " if self.symbol and self.symbol not in self.meaning.split() else ""
        return f"{symbol}{self.meaning}{f' ({self.values})' if self.values else ''}"


# The order is that of the help, and that in which `spread_out` assigns the dimensions of its sequence.
# Few batch sizes are tuned, because each needs its own compiled program.
SETTINGS: dict[str, Setting] = {
    "eta": Setting("step size", "η", POSITIVE, Around()),
    "alpha": Setting("weight of the new estimate; 1: no memory", "α", SHARE, Range(0.05, 1.0, log=True)),
    "S0": Setting("trajectories of a large batch", "", COUNT, Choices((10, 25))),
    "B": Setting("trajectories of a small batch", "", COUNT, Choices((5, 10))),
    "m": Setting("small batches after each large one", "", COUNT, Choices((3, 10))),
    "gamma": Setting("discount", "γ", Allowed(0, 1, "low")),
    "baseline": Setting("what is subtracted from the signal", "b_h", values="time, none, optimal; pgt also value"),
    "optimizer": Setting("any optax optimiser", values="adam, sgd, rmsprop ..."),
    "decay": Setting("η is multiplied by it every decay_every iterations", "", Allowed(0, 1, "low"), Range(0.5, 1.0)),
    "decay_every": Setting("iterations for one decay of η", "", COUNT),
    "adaptive": Setting("the inner loop may end early (Papini et al. 2018)"),
    "two_optimizers": Setting("snapshots have an optimiser of their own (Papini et al. 2018)"),
    "inner_rate": Setting("share of η for inner steps, with two_optimizers", "", POSITIVE),
    "self_normalised": Setting("divide importance weights by their mean over the batch"),
    "delta": Setting(
        "limit of a step: KL divergence (svrpo), length (tsivr-pg), nats for 1000 steps (window-npg)", "δ", POSITIVE, Around()
    ),
    "damping": Setting("added to the diagonal of the Fisher matrix", "", POSITIVE),
    "K": Setting("number of batches in the window", "", COUNT),
    "lam": Setting("decay of generalised advantage estimation", "λ", SHARE),
    "kappa": Setting("trust region in nats for an episode", "κ", POSITIVE, Range(0.3, 10.0, log=True)),
    "critic_share": Setting("prior share of the estimate with a value function", "", SHARE, Range(0.1, 0.9)),
    "c": Setting("factor of the rule for α", "", POSITIVE, Around()),
    "w": Setting("constant in the rule for η", "", POSITIVE, Range(1.0, 100.0, log=True)),
    "k": Setting("numerator of the share of a mirror step that is taken", "", POSITIVE),
    "factor": Setting("factor of the accumulated norms in the rule for η", "", POSITIVE),
    "floor": Setting("smallest α", "", SHARE),
    "weight_low": Setting("smallest importance weight", "", SHARE),
    "weight_high": Setting("largest importance weight", "", Allowed(1)),
    "largest": Setting("largest component of a step's direction", "", POSITIVE),
    "mirror": Setting("mirror map", values="euclidean, diagonal, p-norm"),
    "norm": Setting("exponent of the mirror map p-norm", "p", Allowed(1, open="low")),
    "power": Setting("exponent of the accumulated norms of g", "p", Allowed(0, 0.5, "low")),
    "a0": Setting("scale of the differences that α follows", "a_0", POSITIVE),
    "b0": Setting("constant in the rule for η", "b_0", POSITIVE),
    "norms": Setting("let α follow the norms of estimates (META-STORM-SG)"),
    "scale": Setting("factor of the correction", "γ", Allowed(0), Range(0.01, 1.0, log=True)),
    "radius": Setting("norm to which the corrected estimate is shortened", "", POSITIVE),
    "exact": Setting("evaluate the correction on the same batch"),
    "p": Setting("probability of a large batch", "", SHARE, Range(0.1, 0.9)),
    "b": Setting("probability that a trajectory is sampled at the reference", "", Allowed(0, 1, "high"), Range(0.1, 0.7)),
    "penalty": Setting("η λ of the L2 penalty", "", Allowed(0)),
    "share": Setting("share of the new parameters in the average", "", Allowed(0, 1, "low")),
    "restart": Setting("small iterations before the next large batch; 0: never", "", Allowed(0)),
    "failure": Setting("probability with which the bound may fail", "δ", Allowed(0, 1, "low high")),
    "iterations": Setting("ascents on each batch", "", COUNT),
}
ONE_SIZE = Choices((5, 10, 25))  # of S0, if all batches have S0 trajectories


def tuned(defaults: Mapping[str, Any]) -> dict[str, Range | Choices]:
    """The settings that are tuned, with their values, of a constructor with these defaults."""
    found: dict[str, Range | Choices] = {}
    for name, setting in SETTINGS.items():
        values = setting.tuned
        if name in defaults and values is not None:
            size = defaults[name]
            found[name] = Range(values.low * size, values.high * size, log=True) if isinstance(values, Around) else values
    return found if "B" in defaults or "S0" not in defaults else {**found, "S0": ONE_SIZE}


def tuned_text(values: Range | Choices | None) -> str:
    """Tuned values in words; empty for None."""
    if isinstance(values, Choices):
        return ", ".join(map(str, values.values))
    return "" if values is None else f"{values.low:g} to {values.high:g}"


def arguments(defaults: Mapping[str, Any]) -> Iterator[str]:
    """A line for each setting of a constructor, for its docstring: symbol, meaning, allowed values, default, tuned values."""
    values = tuned(defaults)
    for name, default in defaults.items():
        text = ""
        if setting := SETTINGS.get(name):  # an algorithm of the user's own may have others
            symbol = f"{setting.symbol}, " if setting.symbol else ""
            names = f" ({setting.values})" if setting.values else ""
            allowed = f" {setting.allowed.text.capitalize()}." if setting.allowed else ""
            text = f"{symbol}{setting.meaning}{names}.{allowed} "
        over = f" Tuned over {tuned_text(values[name])}." if name in values else ""
        yield f"{name}: {text}Default: {shown(default)}.{over}"


def shown(value: Any) -> str:
    """A value of a setting, as it is typed in a command."""
    return f"{value:g}" if isinstance(value, float) else str(value)
