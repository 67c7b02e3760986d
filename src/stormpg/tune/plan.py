"""What a search is asked for."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from stormpg.files import as_json
from stormpg.tune.objective import Objective
from stormpg.tune.space import Space, from_plain, plain

HALVINGS = (0.25, 0.5)  # shares of the budget after which the better half of a generation goes on


class Problem(NamedTuple):
    """What every trial of a search has in common."""

    env: str
    algorithm: str
    trajectories: int
    seeds: tuple[int, ...]
    horizon: int | None
    objective: Objective


@dataclasses.dataclass(frozen=True)
class Search:
    """What is asked for."""

    problem: Problem
    space: Space
    fixed: Mapping[str, Any]  # settings that are not tuned
    first: Mapping[str, Any]  # the settings of the first trial, as far as the space has them
    trials: int = 64
    generation: int = 16
    halving: bool = True
    seed: int = 0

    @property
    def rungs(self) -> tuple[float, ...]:
        return HALVINGS if self.halving else ()

    def about(self) -> dict[str, Any]:
        """All that a study must have in common with this to be gone on with."""
        same = {"generation": self.generation, "halving": self.rungs, "seed": self.seed, "fixed": dict(self.fixed)}
        return as_json({**self.problem._asdict(), "space": plain(self.space), **same})


def from_about(about: Mapping[str, Any]) -> Search:
    """The search that was asked for in a folder, as far as its report needs it."""
    named = {name: about[name] for name in ("env", "algorithm", "trajectories", "horizon")}
    problem = Problem(**named, seeds=tuple(about["seeds"]), objective=Objective(*about["objective"]))
    same = {"generation": about["generation"], "halving": bool(about["halving"]), "seed": about["seed"]}
    return Search(problem, from_plain(about["space"]), about["fixed"], {}, **same)
