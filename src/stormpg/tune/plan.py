"""The definition of a search: the problem, the space, and how many trials."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stormpg.algorithms import ALGORITHMS
from stormpg.envs.from_files import check_name
from stormpg.errors import choose
from stormpg.files import as_json
from stormpg.files.reading import check_fields
from stormpg.tune.objective import Objective, objective
from stormpg.tune.space import Space, plain, space_of

HALVINGS = (0.25, 0.5)  # shares of the budget after which the better half of a generation continues

ABOUT: dict[str, Any] = {  # the fields of a search's experiment.json, besides its kind
    "study": str,
    "storage": str | None,
    "fresh": int,
    "env": str,
    "algorithm": str,
    "trajectories": int,
    "seeds": list[int],
    "horizon": int | None,
    "objective": tuple[str, float | None],
    "space": dict[str, dict[str, Any]],
    "generation": int,
    "halving": list[float],
    "seed": int,
    "fixed": dict[str, Any],
    "default": dict[str, Any],
}


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
    """A search as requested."""

    problem: Problem
    space: Space
    fixed: Mapping[str, Any]  # settings that are not tuned
    first: Mapping[str, Any]  # the settings of the first trial; those outside the space are ignored
    trials: int = 64
    generation: int = 16
    halving: bool = True
    seed: int = 0

    @property
    def rungs(self) -> tuple[float, ...]:
        """The shares of the budget at which trials are pruned."""
        return HALVINGS if self.halving else ()

    def about(self) -> dict[str, Any]:
        """The values that a stored study must share with this search to be continued."""
        same = {"generation": self.generation, "halving": self.rungs, "seed": self.seed, "fixed": dict(self.fixed)}
        shared: dict[str, Any] = as_json({**self.problem._asdict(), "space": plain(self.space), **same})
        return shared


def from_about(about: Mapping[str, Any], file: Path) -> Search:
    """The search that a folder's experiment.json describes, with the parts that its report needs."""
    check_fields(about, ABOUT, str(file), {"trajectories": 10**12, "seed": 2**31})
    check_name(about["env"], file)
    named = {name: about[name] for name in ("env", "algorithm", "trajectories", "horizon")}
    choose("algorithm", about["algorithm"], ALGORITHMS)
    problem = Problem(**named, seeds=tuple(about["seeds"]), objective=objective(*about["objective"]))
    same = {"generation": about["generation"], "halving": bool(about["halving"]), "seed": about["seed"]}
    return Search(problem, space_of(about["space"], about["algorithm"], str(file)), about["fixed"], {}, **same)
