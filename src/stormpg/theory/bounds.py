"""The paper's constants, bounds and prescriptions, as printed and as its proofs require them.

| symbol | argument | meaning |
|---|---|---|
| R, M, N | R, M, N | bounds on rewards, scores and Hessians of log π (Assumptions 2 and 3) |
| σ² | sigma2 | bound on Var d(ξ) (Assumption 4) |
| φ² | phi2 | bound on Var w(τ) (Assumption 5) |
| Δ | gap | L* − L(ξ_0). L is maximised, so the paper's L(ξ_0) − f* has the wrong sign |
"""

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class Constants:
    """The constants that the paper assumes for a problem and a policy."""

    R: float
    M: float
    N: float
    sigma2: float
    phi2: float
    gap: float
    gamma: float
    horizon: int

    @property
    def L_d(self) -> float:
        """NR/(1−γ)², equation (20): a Lipschitz constant of d(ξ) on a fixed trajectory.

        The paper also uses it as a Lipschitz constant of ∇L. That ignores the change of p(τ|ξ), see `smoothness`.
        """
        return self.N * self.R / (1 - self.gamma) ** 2 if self.gamma < 1 else math.inf

    @property
    def smoothness(self) -> float:
        """A Lipschitz constant of ∇L: Σ_h γ^h R [ (h+1) N + (h+1)² M² ].

        From ∇²E[r_h] = E[r_h (∇² log p_h + ∇log p_h ∇log p_hᵀ)], where p_h is the probability of the first h + 1 steps.
        """
        return sum(
            self.gamma**h * self.R * ((h + 1) * self.N + (h + 1) ** 2 * self.M**2) for h in range(self.horizon)
        )  # fmt: skip

    def weight(self, h: int, printed: bool = True) -> float:
        """Lemma 2's C with Var w_h ≤ C ‖ξ_1 − ξ_2‖²: h(2hM² + N)(φ + 1) as printed.

        Corrected (`printed` is False): the weight of steps 0 .. h is a product of h + 1 ratios, so the printed C would be 0
        for h = 0. Also, the original bound (Xu et al. 2019, Lemma A.1) has φ², the bound on the variance, instead of φ.
        """
        steps, bound = (h, math.sqrt(self.phi2)) if printed else (h + 1, self.phi2)
        return steps * (2 * steps * self.M**2 + self.N) * (bound + 1)

    def difference(self, printed: bool = True) -> float:
        """Lemma 3's C_γ with E‖d^{ξ'}(ξ) − d(ξ')‖² ≤ C_γ ‖ξ − ξ'‖², from its proof: Σ_h 2C_w² h²M²R²γ^{2h} + 2L_d as printed.

        Corrected (`printed` is False): C_w instead of its square, because Lemma 2 already bounds a square; L_d² instead of
        L_d, because L_d bounds the difference itself; a factor H, because the square of a sum of H vectors is at most H
        times the sum of their squares; and h + 1 scores at step h.
        """
        if printed:
            terms = (self.weight(h) ** 2 * h**2 * self.gamma ** (2 * h) for h in range(self.horizon))
            return 2 * self.M**2 * self.R**2 * sum(terms) + 2 * self.L_d
        terms = (self.weight(h, False) * (h + 1) ** 2 * self.gamma ** (2 * h) for h in range(self.horizon))
        return 2 * self.horizon * self.M**2 * self.R**2 * sum(terms) + 2 * self.L_d**2


def admissible(alpha: float, B: int, eta: float, constant: float) -> bool:
    """Whether αB ≥ 4η²C², the condition of Theorem 1: C is L_d as stated and C_γ as the proof requires.

    The proof's C_γ is the square root of Lemma 3's constant: Lemma 3 bounds a square by it, and Lemma 4 squares it again.
    Step (b) of the proof also requires η ≤ 1/(2 · smoothness), which the theorem does not state.
    """
    return alpha * B >= 4 * eta**2 * constant**2


def one_step(error: Any, estimate: Any, alpha: float, B: int, eta: float, sigma2: float, difference2: float) -> Any:
    """The right side of Lemma 4: a bound on the next error, from E‖g_t − ∇L(ξ_t)‖² and E‖g_t‖².

    difference2: the constant in front of ‖ξ_{t+1} − ξ_t‖². The paper prints C_γ², but Lemma 3 as stated gives C_γ.
    """
    keep = (1 - alpha) ** 2
    return keep * error + 2 * eta**2 / B * keep * difference2 * estimate + 2 * alpha**2 * sigma2 / B


def accumulated(first: Any, estimates: Any, T: int, alpha: float, B: int, eta: float, sigma2: float, difference2: float) -> Any:
    """The right side of Lemma 5: a bound on the sum of all errors, from the first error and Σ E‖g_t‖²."""
    return 2 / alpha * (difference2 * eta**2 / B * estimates + T * alpha**2 * sigma2 / B + first)


def theorem(gap: float, T: int, alpha: float, B: int, eta: float, S0: int, sigma2: float) -> float:
    """The right side of Theorem 1: a bound on the mean of E‖∇L(ξ_t)‖² over T iterations."""
    return 2 * gap / (eta * T) + 2 * alpha * sigma2 / B + 2 / T * sigma2 / (S0 * alpha)


@dataclasses.dataclass(frozen=True)
class Prescription:
    """The settings that a theory prescribes for E‖∇L‖² ≤ ε², and a sufficient number T of iterations."""

    S0: int
    eta: float
    T: int
    B: int | None = None
    alpha: float | None = None
    m: int | None = None

    @property
    def settings(self) -> dict[str, float | int]:
        """The settings as arguments of `make_algorithm`."""
        named = {"eta": self.eta, "alpha": self.alpha, "S0": self.S0, "B": self.B, "m": self.m}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def trajectories(self) -> int:
        """The number of trajectories sampled in T iterations."""
        if self.B is None:
            return self.T * self.S0
        if self.m is None:
            return self.S0 + self.T * self.B
        return math.ceil(self.T / self.m) * (self.S0 + self.m * self.B)


def corollary(
    epsilon: float, sigma2: float, gap: float, C_gamma: float, B: int = 1, smoothness: float = 0.0
) -> Prescription:  # fmt: skip
    """Return the settings of Corollary 1: α = ε²B/(6σ²), η = εB/(2√6 σ C_γ), S0 = 2σ²/(√3 ε²).

    These are the formulas of the proof. The statement is the special case B = 1 with L_d instead of C_γ. T is the larger of
    the two values that equation (limits) requires, 6Δ/(ηε²) and 6σ²/(S0 α ε²). (The proof divides by 3 where it should
    multiply.) α is at most 1, and η = √(αB)/(2C_γ) is at most 1/(2 · smoothness), see `admissible`. C_γ is the square root
    of Lemma 3's constant.
    """
    alpha = min(1.0, epsilon**2 * B / (6 * sigma2)) if sigma2 > 0 else 1.0
    eta = min(math.sqrt(alpha * B) / (2 * C_gamma), 1 / (2 * smoothness) if smoothness > 0 else math.inf)
    S0 = max(1, math.ceil(2 * sigma2 / (math.sqrt(3) * epsilon**2)))
    T = max(6 * gap / (eta * epsilon**2), 6 * sigma2 / (S0 * alpha * epsilon**2))
    return Prescription(S0, eta, math.ceil(T), B, alpha)


def prescriptions(
    epsilon: float, sigma2: float, gap: float, C_gamma: float, smoothness: float, B: int = 1
) -> dict[str, Prescription]:
    """Return what the theory of each method prescribes. l is the smoothness.

    STORM-PG: see `corollary`. For the other methods, both terms of the bound are set to ε²/2:

    - GPOMDP: 2Δ/(ηT) + lησ²/S0 for η ≤ 1/l, here 1/(2l) (the textbook bound for stochastic gradient ascent).
    - SVRPG: 8Δ/(ηT) + 6σ²/S0 with η = 1/(4l), B = S0^(2/3), m = S0^(1/3) (Xu, Gao, Gu 2019, "An improved convergence
      analysis").
    - SRVR-PG: the same bound and η, B = m = S0^(1/2) (Xu, Gao, Gu 2020, "Sample efficient policy gradient").
    """
    need, square = max(sigma2 / epsilon**2, 1e-9), epsilon**2
    found = {"gpomdp": Prescription(math.ceil(need), 1 / (2 * smoothness), math.ceil(8 * gap * smoothness / square))}
    for name, share in (("svrpg", 1 / 3), ("srvr-pg", 1 / 2)):
        S0 = math.ceil(12 * need)
        T = math.ceil(64 * gap * smoothness / square)
        found[name] = Prescription(S0, 1 / (4 * smoothness), T, math.ceil(S0 ** (1 - share)), None, math.ceil(S0**share))
    return found | {"storm-pg": corollary(epsilon, sigma2, gap, C_gamma, B, smoothness)}
