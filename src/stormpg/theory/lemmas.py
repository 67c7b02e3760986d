"""Both sides of the inequalities of the paper's lemmas and theorem, exact or along runs, over grids.

| | left side | right side |
|---|---|---|
| Lemma 2 | Var w_h, exact | C_w ‖ξ − ξ'‖² |
| Lemma 3 | E‖d^{ξ'}(ξ) − d(ξ')‖², exact | C_γ ‖ξ − ξ'‖² |
| Lemma 4 | E‖g_{t+1} − ∇L(ξ_{t+1})‖², along runs | from E‖g_t − ∇L(ξ_t)‖² and E‖g_t‖² |
| Lemma 5 | Σ_t E‖g_t − ∇L(ξ_t)‖² | from the first error and Σ_t E‖g_t‖² |
| Theorem 1 | the mean of E‖∇L(ξ_t)‖² | 2Δ/(ηT) + 2ασ²/B + 2σ²/(TαS0) |
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import make_algorithm
from stormpg.envs.chain import Tables
from stormpg.statistics import percentiles
from stormpg.theory import bounds, tabular
from stormpg.theory.constants import Measured, along, assumed, measured
from stormpg.theory.descent import Descent
from stormpg.theory.problems import COMMON, FAMILY, problem

DISTANCES = tuple(float(d) for d in np.geomspace(0.001, 10.0, 13))
MOMENTA = (0.02, 0.1, 0.5, 0.9)
ETAS = tuple(float(eta) for eta in np.geomspace(1e-4, 30.0, 12))
BATCHES = (1, 5, 20)
S0 = 25
LOOKED_AT = 12  # number of pairs of iterates of a setting at which σ² and Lemma 3's ratio are computed


def pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random points ξ' (normal logits) and unit directions, [count, S, A] each."""
    random = np.random.default_rng(seed)
    shape = (count, *problem(seed).P.shape[:2])
    direction = random.normal(size=shape)
    return random.normal(size=shape), direction / np.linalg.norm(direction, axis=(1, 2), keepdims=True)


def exact_sides(seed: int, count: int) -> dict[str, Any]:
    """Evaluate Lemmas 2 and 3 on a random problem: the largest ratio of left to right side for each distance ‖ξ − ξ'‖."""
    with jax.enable_x64(True):
        tables = problem(seed)
        found = measured(tables, FAMILY.gamma, FAMILY.horizon)
        points, directions = pairs(count, seed)

        @jax.jit
        def sides(point: Any, direction: Any, distance: Any) -> tuple[Any, Any]:
            here, there = {"logits": point}, {"logits": point + distance * direction}
            weights = tabular.weight_variance(tables, here, there, FAMILY.horizon)
            return weights, tabular.difference_moments(tables, here, there, FAMILY.gamma, FAMILY.horizon).square

        rows = []
        for distance in DISTANCES:
            move = lambda pair, distance=distance: sides(*pair, distance)
            weights, differences = (
                np.asarray(x) for x in jax.lax.map(move, (jnp.asarray(points), jnp.asarray(directions)), batch_size=100)
            )
            constants = assumed(tables, FAMILY.gamma, FAMILY.horizon, found, float(weights.max()))
            rows.append({"distance": distance, **ratios(constants, weights, differences, distance**2)})
    return {"problem": seed, "pairs": count, "rows": rows}


def ratios(constants: bounds.Constants, weights: np.ndarray, differences: np.ndarray, square: float) -> dict[str, Any]:
    """Return the largest ratios of left to right side over the pairs (and over h). Above 1 the inequality does not hold."""
    made: dict[str, Any] = {}
    for how, printed in (("printed", True), ("mended", False)):
        right = np.array([constants.weight(h, printed) for h in range(constants.horizon)]) * square
        with np.errstate(divide="ignore"):
            made[f"lemma2/{how}"] = float((weights / right).max())
            made[f"lemma2/{how}/h"] = int((weights / right).max(axis=0).argmax())
        made[f"lemma3/{how}"] = float(differences.max() / (constants.difference(printed) * square))
    made["phi2"] = constants.phi2
    return made


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting of STORM-PG on the grid."""

    alpha: float
    eta: float
    B: int

    def admissible(self, constant: float) -> bool:
        """Whether Theorem 1's condition holds with this constant."""
        return bounds.admissible(self.alpha, self.B, self.eta, constant)


def along_runs(seed: int, seeds: int, T: int, batches: Sequence[int] = BATCHES) -> dict[str, Any]:
    """Evaluate Lemmas 4 and 5 and Theorem 1 on a random problem, for every setting of the grid."""
    rows = []
    with jax.enable_x64(True):
        tables = problem(seed)
        start = measured(tables, FAMILY.gamma, FAMILY.horizon)
        constants = assumed(tables, FAMILY.gamma, FAMILY.horizon, start, phi2=1.0)
        for B in batches:
            settings = [Setting(alpha, eta, B) for alpha, eta in itertools.product(MOMENTA, ETAS)]
            algorithms = [make_algorithm("storm-pg", eta=s.eta, alpha=s.alpha, S0=S0, B=B, **COMMON) for s in settings]
            what = ("gradient", "error", "estimate", "params")
            descent = Descent(FAMILY, [(tables, 0.0)], algorithms, range(seeds), what).go_on(T)
            columns = {name: descent[name][0] for name in what[:3]}
            iterates = descent["params"]["logits"][0]
            for i, setting in enumerate(settings):
                visited = looked_at(tables, iterates[i], start)
                rows.append(judge(setting, {n: c[i] for n, c in columns.items()}, visited, constants, T))
    stated = {"L_d": constants.L_d, "C_gamma": math.sqrt(constants.difference(False)), "phi2 assumed": 1.0}
    return {"problem": seed, "seeds": seeds, "T": T, "constants": {**start._asdict(), **stated}, "rows": rows}


def looked_at(tables: Tables, iterates: np.ndarray, start: Measured) -> Measured:
    """Return the constants along a setting's runs, at pairs ξ_t, ξ_{t+1} of the first seed, evenly spaced in log t."""
    times = np.unique(np.geomspace(1, iterates.shape[1] - 1, LOOKED_AT).astype(int))
    with jax.default_device(jax.devices("cpu")[0]):  # many small matrices in sequence are faster on the CPU
        pairs = (jnp.asarray(iterates[0, times - 1]), jnp.asarray(iterates[0, times]))
        found = along(tables, *pairs, FAMILY.gamma, FAMILY.horizon)
    sigma2, smoothness, difference = (float(np.nanmax(x)) for x in found)
    return Measured(sigma2, smoothness, difference, start.gap)


def judge(
    setting: Setting, seen: dict[str, np.ndarray], visited: Measured, constants: bounds.Constants, T: int
) -> dict[str, Any]:
    """Return the ratios of left to right side of Lemmas 4 and 5 and of Theorem 1, with intervals over seeds."""
    alpha, eta, B = setting.alpha, setting.eta, setting.B
    expectation: Callable[[str, np.ndarray], np.ndarray] = lambda name, draws: seen[name][draws].mean(axis=-2)  # [..., T + 1]
    own: dict[str, Any] = {"alpha": alpha, "eta": eta, "B": B}
    local: dict[str, Any] = {"sigma2": visited.sigma2, "difference2": visited.difference}
    printed: dict[str, Any] = {"sigma2": constants.sigma2, "difference2": constants.difference(printed=True) ** 2}

    def sides(draws: np.ndarray) -> np.ndarray:
        error, estimate = expectation("error", draws), expectation("estimate", draws)
        later, before, moved = error[..., 1:].sum(axis=-1), error[..., :-1], estimate[..., :-1]
        whole, first, total = error[..., :T].sum(axis=-1), error[..., 0], estimate[..., :T].sum(axis=-1)
        bound = bounds.theorem(visited.gap, T, alpha, B, eta, S0, visited.sigma2)
        made = [later / bounds.one_step(before, moved, **own, **c).sum(axis=-1) for c in (printed, local)]
        made += [whole / bounds.accumulated(first, total, T, **own, **c) for c in (printed, local)]
        return np.stack([*made, expectation("gradient", draws)[..., :T].mean(axis=-1) / bound], axis=-1)

    count, random = len(seen["error"]), np.random.default_rng(0)
    drawn = percentiles(sides(np.arange(count)), sides(random.integers(count, size=(1000, count))))
    proof = math.sqrt(constants.difference(False))
    conditions = {
        "stated": setting.admissible(constants.L_d),
        "proof": setting.admissible(proof) and eta <= 1 / (2 * constants.smoothness),
        "measured": setting.admissible(math.sqrt(visited.difference)) and eta <= 1 / (2 * visited.smoothness),
    }
    names = ("lemma4/printed", "lemma4/mended", "lemma5/printed", "lemma5/mended", "theorem1")
    found = {name: [float(x[i]) for x in (drawn.estimate, drawn.low, drawn.high)] for i, name in enumerate(names)}
    return {**own, "T": T, "S0": S0, "admissible": conditions, **found, "visited": visited._asdict()}
