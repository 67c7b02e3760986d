"""Trackers: how the estimate g_t follows ∇L(ξ_t) from one batch to the next.

| tracker      | g_t                                | memory                              | paper              | module    |
|--------------|------------------------------------|-------------------------------------|--------------------|-----------|
| plain        | d(ξ_t)                             | none                                |                    | corrected |
| svrg         | corrected, α = 0                   | the last large batch's (ξ̃, g̃)       | equation (7)       | corrected |
| svrg_within  | corrected, α = 0                   | the same, and the large batch       | Xu, Liu, Peng 2017 | corrected |
| sarah        | corrected, α = 0                   | the step before, (ξ_{t−1}, g_{t−1}) | equation (8)       | corrected |
| storm        | corrected, α                       | the step before, (ξ_{t−1}, g_{t−1}) | equation (9)       | corrected |
| follow       | α d(ξ_t) + (1 − α) [ c + γ Δ ]     | (ξ_ref, c), and what its parts keep | all of the above   | corrected |
| gain         | corrected, α measured on the batch | the same, and the error of g_{t−1}  |                    | gain      |
| window       | d(ξ_t) over the last K batches     | the last K batches                  |                    | windowed  |
| reused       | the same, batches weighted by D_j  | the last K batches                  |                    | windowed  |
| blend        | the same for two estimators, mixed | the last K batches                  |                    | blended   |

Called by `algorithms`; a tracker is used by the engine.
"""

from stormpg.trackers.blended import Blended, blend
from stormpg.trackers.corrected import (
    Corrected,
    Plain,
    Within,
    check_part,
    corrected,
    follow,
    plain,
    sarah,
    storm,
    svrg,
    svrg_within,
)
from stormpg.trackers.gain import Gain, gain
from stormpg.trackers.transports import (
    Difference,
    Extrapolated,
    Memory,
    Nothing,
    Transport,
    defensive,
    hessian,
    weighted,
)
from stormpg.trackers.windowed import Reused, Windowed, reused, window

__all__ = [
    "Blended",
    "Corrected",
    "Difference",
    "Extrapolated",
    "Gain",
    "Memory",
    "Nothing",
    "Plain",
    "Reused",
    "Transport",
    "Windowed",
    "Within",
    "blend",
    "check_part",
    "corrected",
    "defensive",
    "follow",
    "gain",
    "hessian",
    "plain",
    "reused",
    "sarah",
    "storm",
    "svrg",
    "svrg_within",
    "weighted",
    "window",
]
