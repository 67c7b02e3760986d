"""What the authors of the successors claim about their methods, as inequalities. `studies.verdicts` judges them."""

from collections.abc import Callable, Sequence

import numpy as np

from stormpg.statistics import Interval
from stormpg.studies.verdicts import Algorithms, Claim, over_resamples

CART_POLE, ACROBOT = "cartpole", "acrobot"
OUTSIDE = ("gym:InvertedPendulum-v5", "gym:Reacher-v5", "gym:Swimmer-v5")
QUANTITY = "difference of the mean returns over the whole run"


def ahead(ours: str, other: str) -> Callable[[Algorithms], Interval]:
    """The difference of the mean returns over the whole run."""
    return over_resamples(lambda y, grid: np.asarray(y[ours].mean(axis=-1) - y[other].mean(axis=-1)), ours, other)


def order(source: str, env: str, ours: str, others: Sequence[str]) -> list[tuple[str, Claim]]:
    """Claims that `ours` learns faster than each of the others."""

    def claim(other: str) -> Claim:
        sentence = f"{ours} learns faster than {other}"
        return Claim(f"{source}/{ours}/{other}", sentence, QUANTITY, "above 0", 1, ahead(ours, other), low=1e-9)

    return [(env, claim(other)) for other in others]


def all_claims() -> list[tuple[str, Claim]]:
    """All claims with their environments."""
    return [
        # Gargiani et al. 2022: on Cart-Pole PAGE-PG before STORM-PG, SRVR-PG, SVRPG and GPOMDP, in this order.
        *order("page-pg", CART_POLE, "page-pg", ("storm-pg", "srvr-pg", "svrpg", "gpomdp")),
        *order("page-pg", CART_POLE, "storm-pg", ("srvr-pg",)),
        *order("page-pg", CART_POLE, "srvr-pg", ("svrpg",)),
        *order("page-pg", CART_POLE, "svrpg", ("gpomdp",)),
        # On Acrobot STORM-PG and SVRPG are the fastest.
        *(one for ours in ("storm-pg", "svrpg") for one in order("page-pg", ACROBOT, ours, ("page-pg", "srvr-pg", "gpomdp"))),
        # Zhang et al. 2021: TSIVR-PG before SVRPG, SRVR-PG, HSPGA and REINFORCE, whose place GPOMDP takes here.
        *(
            one
            for env in (CART_POLE, ACROBOT)
            for one in order("tsivr-pg", env, "tsivr-pg", ("svrpg", "srvr-pg", "hspga", "gpomdp"))
        ),
        # Huang et al. 2020, from the logs of their program: 85.9 for IS-MBPG, 81.5 for HA-MBPG.
        *order("is-mbpg", CART_POLE, "is-mbpg", ("ha-mbpg",)),
        # Huang, Gao and Huang 2022: VR-BGPO before BGPO.
        *(one for env in (CART_POLE, ACROBOT) for one in order("vr-bgpo", env, "vr-bgpo", ("bgpo", "is-mbpg"))),
        # Salehkaleybar et al. 2022: SHARP before HAPG, IS-MBPG, PAGE-PG and VR-BGPO on MuJoCo's tasks.
        *(one for env in OUTSIDE for one in order("sharp", env, "sharp", ("hapg", "is-mbpg", "page-pg", "vr-bgpo"))),
        # Montenegro et al. 2026: several batches are better than one.
        *order("rt-pg", CART_POLE, "rt-pg", ("gpomdp",)),
    ]
