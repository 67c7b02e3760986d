"""All measurements of the theory in one folder: what is measured, and in which sizes. `findings` makes the report."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stormpg.engine.budget import LIMIT
from stormpg.envs import make
from stormpg.envs.from_files import check_name
from stormpg.errors import choose
from stormpg.files.reading import as_record
from stormpg.paper import settings_for
from stormpg.policies.constructors import policy_for
from stormpg.studies.equal_tuning import FRESH_SEED, best_setting, tuning_units
from stormpg.studies.study import Tuning, claimed
from stormpg.studies.work_units import Unit
from stormpg.studies.workspace import Workspace
from stormpg.theory import advice, gap, lemmas, payoff, rates, tracking_error

GAMMA = 0.99  # for the adviser's environments
ENVIRONMENTS = {  # trajectories per run; a search tries 12 configurations with a third of the seeds
    "cartpole-continuous": 500,
    "cartpole": 500,
    "rllab-cartpole": 500,
    "rllab-mountain-car": 200,
    "lqr": 500,
}
GROUP = 8  # number of parts after which compiled programs are dropped


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of the laboratory."""

    pairs: int = 200  # pairs of points for Lemmas 2 and 3
    problems: int = 4
    grid_problems: int = 2  # problems for Lemmas 4 and 5 and Theorem 1
    seeds: int = 8  # seeds for rates and map; twice as many if half of them select settings
    many_seeds: int = 32  # seeds for Lemmas 4 and 5, Theorem 1 and tracking errors
    T: int = 300  # iterations for Lemmas 4 and 5 and Theorem 1
    tracked: int = 2000  # trajectories for tracking errors
    closed: int = 50_000  # trajectories for gaps
    points: int = 5  # number of values of ε for the rates
    decades: float = 1.5  # range of these values, in powers of ten
    prescribed_seeds: int = 8  # seeds for rates with prescribed settings, whose batches are large
    prescribed: int = 400_000  # most iterations of a run with prescribed settings
    tuned: int = 15_000  # trajectories of a run with tuned settings
    mapped: int = 2500  # trajectories of a run of the map
    noises: tuple[float, ...] = payoff.NOISES  # of the map, as are the horizons and batches below
    horizons: tuple[int, ...] = payoff.HORIZONS
    batches: tuple[int, ...] = payoff.BATCHES
    grid_batches: tuple[int, ...] = lemmas.BATCHES
    methods: tuple[str, ...] = tuple(tracking_error.SETTINGS)  # methods whose tracking errors are measured
    compared: tuple[str, ...] = rates.METHODS  # methods whose rates are measured with prescribed settings
    rated: tuple[str, ...] = rates.TUNED  # methods whose rates are measured with tuned settings
    pilot: int = 100
    environments: tuple[str, ...] = tuple(ENVIRONMENTS)
    advised_seeds: int = 12


SIZES = {
    "default": Size(),
    "large": Size(pairs=2000, problems=8, grid_problems=4, seeds=32, many_seeds=128, points=8, mapped=6000, advised_seeds=30),
    "small": Size(
        pairs=5, problems=2, grid_problems=1, seeds=2, prescribed_seeds=2, many_seeds=4, T=20, tracked=200, points=3,
        decades=0.2, prescribed=600, tuned=400, mapped=200, horizons=(2,), batches=(2,), grid_batches=(5,),
        methods=("gpomdp", "storm-pg", "sharp", "n-pg-igt"), compared=("gpomdp", "storm-pg"),
        rated=("gpomdp", "storm-pg", "sharp"), closed=1000, pilot=20, environments=("chain",), advised_seeds=2,
    ),
}  # fmt: skip


def measures(size: Size) -> dict[str, Callable[[], Any]]:
    """Return all measurements, by file name."""
    made: dict[str, Callable[[], Any]] = {}
    methods = [name for name in rates.SLOWEST_FIRST if name in size.compared]
    for point, share in reversed(list(enumerate(rates.shares_of(size.points, size.decades)))):
        for name in methods:
            made[prescribed_file(name, point)] = functools.partial(
                rates.by_prescription, name, size.problems, float(share), size.prescribed_seeds, size.prescribed
            )
    for seed in range(size.grid_problems):
        made[f"lemmas/runs-{seed}.json"] = functools.partial(
            lemmas.along_runs, seed, size.many_seeds, size.T, size.grid_batches
        )
    for name in size.rated:
        made[f"rates/tuned/{name}.json"] = functools.partial(
            rates.by_tuning, name, size.problems, size.points, size.decades, size.seeds, size.tuned
        )
    for name, horizon, B in cells(size):
        made[f"map/{name}-{horizon}-{B}.json"] = functools.partial(
            payoff.measure, name, horizon, B, min(size.problems, 2), size.seeds, size.mapped, size.noises
        )
    for kind in ("finite", "linear"):
        for name in size.methods:
            work = functools.partial(tracking_error.along_training, kind, 0, name, size.many_seeds, size.tracked)
            made[f"errors/{kind}/{name}.json"] = work
    for seed in range(size.problems):
        for name in gap.METHODS:
            made[f"gaps/{name}-{seed}.json"] = functools.partial(gap.along, seed, name, size.many_seeds, size.closed)
    for seed in range(size.problems):
        made[f"lemmas/exact-{seed}.json"] = functools.partial(lemmas.exact_sides, seed, size.pairs)
    for env in size.environments:
        made[f"adviser/{env}.json"] = functools.partial(pilot, env, size.pilot)
    return made


def prescribed_file(name: str, point: int) -> str:
    """The file of a method's rate at one ε."""
    return f"rates/prescribed/{name}-{point}.json"


def cells(size: Size) -> list[tuple[str, int, int]]:
    """The parts of the map: method, horizon and B. Slowest first, so that no core is idle at the end."""
    return [(name, h, B) for h in reversed(size.horizons) for B in size.batches for name in ("gpomdp", "storm-pg")]


def pilot(env: str, n: int) -> dict[str, Any]:
    """Return the measurements of a pilot batch and the settings that the adviser recommends in practice."""
    problem = make(env)
    found = advice.pilot(problem, policy_for(problem), GAMMA, n, problem.horizon)
    return {"pilot": found._asdict(), "settings": advice.in_practice(found)}


def advised_units(size: Size, env: str, settings: Any) -> dict[str, list[Unit]]:
    """The runs that compare the adviser's settings with the paper's (or the defaults) and with a search."""
    seeds, trajectories = size.advised_seeds, ENVIRONMENTS.get(env, 100)

    def unit(how: str, chosen: Mapping[str, Any]) -> Unit:
        return Unit(f"adviser/runs/{env}/{how}", env, "storm-pg", (chosen,), trajectories, seeds, FRESH_SEED)

    tuning = Tuning(4, trajectories, max(2, seeds // 3))
    search = tuning_units(env, "storm-pg", tuning.points, tuning.trajectories, tuning.seeds, {})
    search = [dataclasses.replace(one, folder=f"adviser/{one.folder}") for one in search]
    return {"adviser": [unit("adviser", settings)], "table": [unit("table", settings_for(env, "storm-pg"))], "search": search}


def run(workspace: Workspace, size: Size) -> dict[str, Any]:
    """Measure what is missing. Return all data of the report, by file name."""
    with claimed(workspace, {"kind": "theory", **dataclasses.asdict(size)}, []):
        parts = measures(size)
        found = dict(zip(parts, workspace.measure(parts, GROUP), strict=True))
        shares = rates.shares_of(size.points, size.decades)
        for name in size.compared:
            of_name = [found.pop(prescribed_file(name, point)) for point in range(size.points)]
            found[f"rates/prescribed/{name}.json"] = rates.assembled(shares, of_name)
        units = {env: advised_units(size, env, found[f"adviser/{env}.json"]["settings"]) for env in size.environments}
        workspace.run([one for of_env in units.values() for group in of_env.values() for one in group])
        for env, groups in units.items():
            chosen = best_setting(groups["search"], workspace.run(groups["search"]))[0]
            groups["tuned"] = [dataclasses.replace(groups["table"][0], folder=f"adviser/runs/{env}/tuned", settings=(chosen,))]
        workspace.run([groups["tuned"][0] for groups in units.values()])
        for env, groups in units.items():
            runs = {how: workspace.run(groups[how])[0] for how in ("adviser", "table", "tuned")}
            settings = {how: dict(groups[how][0].settings[0]) for how in ("table", "tuned")}
            found[f"adviser/{env}.json"] |= {"runs": runs, "given": settings["table"], "tuned": settings["tuned"]}
        return found


def size_of(about: Mapping[str, Any], file: Path) -> Size:
    """Return the size in the experiment.json of a folder. Counts are limited: all are looped over, some squared."""
    few = dict.fromkeys(("problems", "grid_problems", "points"), 1000)
    many = dict.fromkeys(("prescribed", "tuned", "mapped", "tracked", "closed", "T"), LIMIT)
    size = as_record(Size, about, str(file), few | many)
    for env in size.environments:
        check_name(env, file)
    for names, known in (
        (size.methods, tracking_error.SETTINGS),
        (size.compared, rates.METHODS),
        (size.rated, rates.TUNED),
    ):
        for name in names:
            choose("method", name, known)
    return size


def as_size(name: str) -> Size:
    """The size with this name. InputError if there is none."""
    return SIZES[choose("size", name, SIZES)]
