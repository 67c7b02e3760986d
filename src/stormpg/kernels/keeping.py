"""What forward passes leave for the backward passes over the same steps: activations, on a GPU the outputs of the network.

A rollout and the log-probabilities of a batch compute the activations of the hidden layer, and a sum of scores needs them
again. They belong to one pair of parameters and trajectories, of which this module knows the objects, not the numbers:
trajectories that were changed in any way are other objects, and their activations are computed again.
"""

import functools
import weakref
from typing import Any

import jax

from stormpg.pytrees import Tree
from stormpg.trajectories import Trajectories

MOST = 2**20  # numbers of a run: reading more of them from memory takes as long as computing them again

_kept: dict[tuple[int, int], tuple[Any, Any, Tree]] = {}


def _of(params: Tree, trajectories: Trajectories) -> tuple[Any, Any]:
    """The objects that stand for the parameters and for the trajectories."""
    return jax.tree.leaves(params)[0], trajectories.action


def keep(params: Tree, trajectories: Trajectories, activations: Tree) -> None:
    """Keep them as long as the parameters and the trajectories exist."""
    if activations is None:
        return
    here, there = _of(params, trajectories)
    place = id(here), id(there)
    drop = functools.partial(_kept.pop, place)  # called with a reference, which is the default of `pop`
    _kept[place] = weakref.ref(here, drop), weakref.ref(there, drop), activations


def recall(params: Tree, trajectories: Trajectories) -> Tree:
    """What was kept, or None."""
    here, there = _of(params, trajectories)
    found = _kept.get((id(here), id(there)))
    return found[2] if found is not None and found[0]() is here and found[1]() is there else None
