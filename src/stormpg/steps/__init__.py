"""Steps: how g_t moves the parameters, ξ_{t+1} = ξ_t + step(g_t).

| step             |                                                                          | module       |
|------------------|--------------------------------------------------------------------------|--------------|
| optax_step       | any optax optimiser, with a traced step size                             | optimisers   |
| natural          | along (F + damping)⁻¹ g_t                                                | natural      |
| natural_gradient | the same, with a trust region and a line search on the surrogate (SVRPO) | natural      |
| within           | any step, shortened to a trust region                                    | trust_region |

Called by `algorithms`; a step is applied by the engine.
"""

from stormpg.steps.natural import NaturalDirection, NaturalGradient, Surrogate, natural, natural_gradient, surrogate_on
from stormpg.steps.optimisers import Fixed, Optax, optax_step
from stormpg.steps.trust_region import Within, within

__all__ = [
    "Fixed",
    "NaturalDirection",
    "NaturalGradient",
    "Optax",
    "Surrogate",
    "Within",
    "natural",
    "natural_gradient",
    "optax_step",
    "surrogate_on",
    "within",
]
