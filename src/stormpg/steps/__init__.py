"""Steps: how g_t moves the parameters, ξ_{t+1} = ξ_t + step(g_t).

| step             |                                                                          | module       |
|------------------|--------------------------------------------------------------------------|--------------|
| optax_step       | any optax optimiser, with a traced step size                             | optimisers   |
| natural          | along (F + damping)⁻¹ g_t                                                | natural      |
| natural_gradient | the same, with a trust region and a line search on the surrogate (SVRPO) | natural      |
| within           | any step, shortened to a trust region                                    | trust_region |
| normalised       | of length η                                                              | maps         |
| radius           | any step, of length δ at most                                            | maps         |
| clipped          | any step, along g_t with clipped components                              | maps         |
| mirror           | a mirror step: Euclidean, diagonal, or with a p-norm                     | maps         |
| averaged         | any step, then a proximal map, averaged with ξ_t                         | maps         |
| offline          | several ascents of a lower bound on the return, on one batch (POIS)      | offline      |

Called by `algorithms`; a step is applied by the engine.
"""

from stormpg.steps.maps import Averaged, Clipped, Mirror, Normalised, Radius, averaged, clipped, mirror, normalised, radius
from stormpg.steps.natural import NaturalDirection, NaturalGradient, Surrogate, natural, natural_gradient, surrogate_on
from stormpg.steps.offline import Offline, offline
from stormpg.steps.optimisers import Fixed, Optax, optax_step
from stormpg.steps.trust_region import Within, within

__all__ = [
    "Averaged",
    "Clipped",
    "Fixed",
    "Mirror",
    "NaturalDirection",
    "NaturalGradient",
    "Normalised",
    "Offline",
    "Optax",
    "Radius",
    "Surrogate",
    "Within",
    "averaged",
    "clipped",
    "mirror",
    "natural",
    "natural_gradient",
    "normalised",
    "offline",
    "optax_step",
    "radius",
    "surrogate_on",
    "within",
]
