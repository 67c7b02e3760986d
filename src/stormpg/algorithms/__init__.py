"""The algorithms: each one combines an estimator, a tracker, a schedule and a step.

| module    | algorithms                                                                                          |
|-----------|-----------------------------------------------------------------------------------------------------|
| compared  | those of the paper: REINFORCE, PGT, GPOMDP, SVRPO, SVRPG, SRVR-PG, STORM-PG                         |
| windowed  | the default of the library, over the last K batches                                                 |
| momentum  | successors with a rule for α and η, a mirror step, or a scaled correction                           |
| hessian   | successors with Hessian-vector products, or sampled at an extrapolated point                        |
| recursive | successors with other batches (a coin, two batches, mixtures) or other steps (radius, prox, natural) |
| registry  | what an algorithm is, and the list of all                                                           |
| settings  | what each setting means, and over which values it is tuned                                          |

Symbols: η is `eta`, α (also written a) is `alpha`, γ is `gamma`; S0, B and m keep their names.

Common settings: baseline (see `estimators`); optimizer: the name of an optax optimiser, a function from a learning rate to
one, or an optax transformation, which is used as it is, without eta and decay; decay and decay_every:
η_t = η · decay^(t / decay_every).
"""

from stormpg.algorithms.compared import gpomdp, pgt, reinforce, srvr_pg, storm_pg, svrpg, svrpo
from stormpg.algorithms.hessian import ha_mbpg, hapg, harpg, n_harpg, n_pg_igt, sharp
from stormpg.algorithms.momentum import bgpo, is_mbpg, is_mbpg_star, mars_pg, meta_storm, storm_plus, vr_bgpo
from stormpg.algorithms.recursive import (
    def_page_pg,
    def_srvr_pg,
    def_storm_pg,
    def_svrpg,
    hspga,
    page_pg,
    pois,
    prox_hspga,
    srvr_npg,
    storm_npg,
    tsivr_pg,
)
from stormpg.algorithms.registry import ALGORITHMS, DEFAULT, Algorithm, algorithm, check_type, make_algorithm, others_with
from stormpg.algorithms.windowed import EXPLORING, rt_pg, window_npg

__all__ = [
    "ALGORITHMS",
    "DEFAULT",
    "EXPLORING",
    "Algorithm",
    "algorithm",
    "bgpo",
    "check_type",
    "def_page_pg",
    "def_srvr_pg",
    "def_storm_pg",
    "def_svrpg",
    "gpomdp",
    "ha_mbpg",
    "hapg",
    "harpg",
    "hspga",
    "is_mbpg",
    "is_mbpg_star",
    "make_algorithm",
    "mars_pg",
    "meta_storm",
    "n_harpg",
    "n_pg_igt",
    "others_with",
    "page_pg",
    "pgt",
    "pois",
    "prox_hspga",
    "reinforce",
    "rt_pg",
    "sharp",
    "srvr_npg",
    "srvr_pg",
    "storm_npg",
    "storm_pg",
    "storm_plus",
    "svrpg",
    "svrpo",
    "tsivr_pg",
    "vr_bgpo",
    "window_npg",
]
