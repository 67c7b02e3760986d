"""The empirical claims of the paper's §7 as data: the sentence, the quantity measured, and the range in which it holds.

`studies.verdicts` judges them.
"""

from stormpg.paper import CLAIMED_MAXIMUM
from stormpg.reproduce.quantities import (
    NEAR_MAXIMUM,
    REASONABLE,
    STABLE,
    ahead_at,
    lead,
    reaches_maximum,
    reasonable,
    shortfall,
    unsteadiness,
)
from stormpg.studies.verdicts import Claim

ABOUT = 1.5  # "about N" means between N / 1.5 and 1.5 N


def cart_pole_claims() -> list[Claim]:
    """The claims about Figure 1."""
    rows = [
        Claim(
            f"cart-pole/{name}/maximum",
            f"{name} reaches the maximum at about {at} trajectories",
            f"trajectories until {NEAR_MAXIMUM:.0%} of where the best curve ends; about: a factor of {ABOUT}",
            f"about {at}",
            at,
            reaches_maximum(name),
            at / ABOUT,
            at * ABOUT,
        )
        for name, at in CLAIMED_MAXIMUM.items()
    ]
    rows.append(
        Claim(
            "cart-pole/storm-pg/within-500",
            "storm-pg has reached the maximum by 500 trajectories",
            f"trajectories until {NEAR_MAXIMUM:.0%} of where the best curve ends",
            "500",
            500,
            reaches_maximum("storm-pg"),
            high=500,
        )
    )
    rivals = {name: at for name, at in CLAIMED_MAXIMUM.items() if name != "storm-pg"}
    rows += [
        Claim(
            f"cart-pole/storm-pg/lead/{name}",
            f"storm-pg converges faster than {name}",
            f"trajectories by which {name} reaches the maximum later",
            f"about {at - CLAIMED_MAXIMUM['storm-pg']}",
            at,
            lead("storm-pg", name),
            low=1,
            infinite="∞",
        )
        for name, at in rivals.items()
    ]
    rows += [
        Claim(
            f"cart-pole/{name}/lead/gpomdp",
            f"{name} converges faster than gpomdp",
            "trajectories by which gpomdp reaches the maximum later",
            f"about {CLAIMED_MAXIMUM['gpomdp'] - rivals[name]}",
            CLAIMED_MAXIMUM["gpomdp"],
            lead(name, "gpomdp"),
            low=1,
            infinite="∞",
        )
        for name in ("svrpg", "srvr-pg")
    ]
    return rows


def mountain_car_claims() -> list[Claim]:
    """The claims about Figure 2."""
    rows = [
        Claim(
            f"mountain-car/storm-pg/ahead-at-200/{name}",
            f"storm-pg outperforms {name} within the first 200 trajectories",
            "difference of returns at 200 trajectories",
            "above 0",
            200,
            ahead_at(200, "storm-pg", name),
            low=1e-9,
        )
        for name in ("svrpg", "srvr-pg")
    ]
    rows.append(
        Claim(
            "mountain-car/storm-pg/stable-by-600",
            "storm-pg is in a stable zone within 600 trajectories",
            f"deepest fall below its end after 600, as a share of its gain; stable: at most {STABLE:.0%}",
            "about 0",
            1000,
            unsteadiness(600),
            high=STABLE,
        )
    )
    rows += [
        Claim(
            f"mountain-car/{name}/late",
            f"{name} takes at least 1000 trajectories to a reasonable result",
            f"trajectories until {REASONABLE:.0%} of the way to storm-pg's end",
            "at least 1000",
            1000,
            reasonable(name),
            low=1000,
        )
        for name in ("svrpg", "srvr-pg")
    ]
    rows.append(
        Claim(
            "mountain-car/gpomdp/does-not-converge",
            "gpomdp does not converge well",
            f"how far below storm-pg it ends, as a share of storm-pg's gain; not well: at least {1 - REASONABLE:.0%}",
            "not shown",
            1000,
            shortfall("gpomdp"),
            low=1 - REASONABLE,
        )
    )
    return rows
