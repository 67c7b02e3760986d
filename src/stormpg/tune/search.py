"""The search: generations of trials, asked of Optuna, halved on the way, told in order.

Nothing depends on who does the work, or when: a generation is asked for as a whole, the sampler has a seed of its own for each
trial, and results are told by number. So a search on a cluster, or one that was interrupted, is the search in one go.
"""

import contextlib
import dataclasses
import json
import math
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stormpg import files
from stormpg.errors import InputError, PartsFailed
from stormpg.experiments.units import as_json, drop_programs
from stormpg.experiments.workshop import Part, Workshop
from stormpg.options import without_secrets
from stormpg.tune.objective import Objective
from stormpg.tune.packs import Found, Problem, packed, run_pack, trial
from stormpg.tune.space import Space, distributions, from_plain, plain, within

HALVINGS = (4, 2)  # of the budget: after a quarter of it the better half goes on, after a half of it half of these
GENERATIONS = 4  # after which compiled programs are dropped: a space may have any number of shapes
OWNER = "owner"  # the file with the name under which this folder asks for trials


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

    def about(self) -> dict[str, Any]:
        """All that a study must have in common with this to be gone on with."""
        problem = {**self.problem._asdict(), "seeds": list(self.problem.seeds), "objective": list(self.problem.objective)}
        same = {"generation": self.generation, "halving": self.halving, "seed": self.seed, "fixed": dict(self.fixed)}
        return {**problem, "space": plain(self.space), **same}


def from_about(about: Mapping[str, Any]) -> Search:
    """The search that was asked for in a folder, as far as its report needs it."""
    named = {name: about[name] for name in ("env", "algorithm", "trajectories", "horizon")}
    problem = Problem(**named, seeds=tuple(about["seeds"]), objective=Objective(*about["objective"]))
    same = {name: about[name] for name in ("generation", "halving", "seed")}
    return Search(problem, from_plain(about["space"]), about["fixed"], {}, **same)


class Judged(NamedTuple):
    """A trial when its generation is over."""

    value: float | None  # None: it failed
    way: dict[int, float]  # how good it was at each rung, larger is better
    pruned: bool = False
    note: str = ""


@contextlib.contextmanager
def stored(url: str, *more: type[Exception]) -> Iterator[None]:
    """What a storage says when it cannot be used, as one line. `more`: errors that are the storage's here."""
    try:
        import optuna
        import sqlalchemy.exc
    except ImportError:
        raise InputError('Optuna is not installed: pip install "stormpg[tune]".') from None
    its: tuple[type[Exception], ...] = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, *more)
    try:
        yield
    except its as error:
        reason = " ".join(without_secrets(str(error)).split())[:300]
        raise InputError(f"the storage {without_secrets(url)} cannot be used: {reason}") from None


def open_study(url: str, name: str, about: Mapping[str, Any], direction: Any) -> Any:
    """The study of this name in an Optuna storage, begun where there is none; InputError where it is of something else."""
    with stored(url, ImportError, ValueError, RuntimeError):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage = optuna.storages.get_storage(url)
        study = optuna.create_study(storage=storage, study_name=name, direction=direction, load_if_exists=True)
        if "about" not in study.user_attrs and not study.trials:
            study.set_user_attr("about", dict(about))
        held, asked = study.user_attrs.get("about", {}), as_json(about)
    for key in sorted(asked.keys() | held.keys()):
        if held.get(key) != asked.get(key):
            raise InputError(
                f"the study {name!r} has {key} = {str(held.get(key))[:80]}; asked for {str(asked.get(key))[:80]}. "
                "Give another --study name, or another folder with --out."
            )
    return study


def close(study: Any) -> None:
    """Let go of the study's storage: a server's connections are few."""
    storage = getattr(study._storage, "_backend", study._storage)
    study._storage.remove_session()
    if hasattr(storage, "engine"):
        storage.engine.dispose()


def owner_of(folder: Path) -> str:
    """The name under which this folder asks for trials, which outlives the process."""
    file = folder / OWNER
    if not file.exists():
        files.write_text(file, uuid.uuid4().hex)
    return file.read_text(encoding="utf-8").strip()


def run(shop: Workshop, search: Search, study: Any, alone: bool) -> None:
    """Generation after generation until there are enough trials. `alone`: nobody else asks for trials of this study.

    Where others are still at work on the last ones, it ends without these.
    """
    owner = owner_of(shop.root)
    while True:
        mine = [t for t in trials_of(study) if t.user_attrs.get("owner") == owner]
        begun = [t.user_attrs["generation"] for t in mine if not t.state.is_finished()]
        number = min(begun) if begun else 1 + max((t.user_attrs["generation"] for t in mine), default=-1)
        members = asked(study, search, owner, alone, number)
        if not members:
            return
        judge(shop, search, study, members, number)
        shutil.rmtree(shop.root / "trials", ignore_errors=True)
        if number % GENERATIONS == GENERATIONS - 1:
            drop_programs()


def trials_of(study: Any) -> list[Any]:
    return study.get_trials(deepcopy=False)


def asked(study: Any, search: Search, owner: str, alone: bool, generation: int) -> list[Any]:
    """The trials of a generation: those that are there, and the rest of it from the sampler, as long as any are wanted.

    The sampler asks a copy of the study, so that a trial is in the storage with all that belongs to it, or not at all.
    """
    import optuna

    own = {"generation": generation, "owner": owner}
    mine = lambda: [t for t in trials_of(study) if own.items() <= t.user_attrs.items()]
    there, of_generation = trials_of(study), mine()
    missing = min(search.generation - len(of_generation), search.trials - len(there))
    if missing > 0:
        spaces = distributions(search.space)
        known = {name: value for name, value in search.first.items() if within(search.space, name, value)}
        # Who is not alone has a stream of his own: others may be asking for the same number at this moment.
        first_seed = search.seed + (0 if alone else int(owner[:6], 16))
        with quiet():
            copy = optuna.create_study(direction=study.direction)
            copy.add_trials(there)
            for number in range(len(there), len(there) + missing):
                sampler = optuna.samplers.TPESampler(seed=first_seed + number, constant_liar=True)
                copy.sampler = sampler if number else optuna.samplers.PartialFixedSampler(known, sampler)
                params, state = copy.ask(spaces).params, optuna.trial.TrialState.RUNNING
                one = optuna.trial.create_trial(state=state, params=params, distributions=spaces, user_attrs=own)
                study.add_trial(one)
    return sorted(mine(), key=lambda t: t.number)


def judge(shop: Workshop, search: Search, study: Any, members: Sequence[Any], generation: int) -> None:
    """Run a generation rung by rung, and tell what came of it."""
    from optuna.trial import Trial, TrialState

    settings = [{**search.fixed, **member.params} for member in members]
    judged = halved(shop, search, settings, generation)
    with quiet():
        for member, found in zip(members, judged, strict=True):
            if member.state.is_finished():
                continue
            if found.value is None or not math.isfinite(found.value):
                tell_failed(study, member, found.note or f"its value is {found.value}")
                continue
            one = Trial(study, member._trial_id)
            sign = -1.0 if search.problem.objective.direction == "minimize" else 1.0
            for trajectories, good in found.way.items():
                one.report(sign * good, trajectories)
            if found.note:
                one.set_user_attr("note", found.note)
            if found.pruned:
                study.tell(one, state=TrialState.PRUNED)
            else:
                study.tell(one, found.value)


def tell_failed(study: Any, member: Any, why: str) -> None:
    from optuna.trial import Trial, TrialState

    one = Trial(study, member._trial_id)
    one.set_user_attr("error", why)
    study.tell(one, state=TrialState.FAIL)


def halved(shop: Workshop, search: Search, settings: Sequence[Mapping[str, Any]], generation: int) -> list[Judged]:
    """All trials of a generation: at each rung the better half of those that are left goes on."""
    problem, judged = search.problem, [Judged(None, {}) for _ in settings]
    alive = []
    for number, setting in enumerate(settings):
        try:
            trial(problem, setting)
            alive.append(number)
        except InputError as error:
            judged[number] = Judged(None, {}, note=str(error))
    rungs: list[int | None] = [problem.trajectories // part for part in HALVINGS] if search.halving else []
    packs = [[alive[i] for i in pack] for pack in packed(problem, [settings[n] for n in alive])]
    before: dict[int, tuple[bytes, int]] = {}  # of each trial: the pack it was in, and its place there
    for level, pause in enumerate([*rungs, None]):
        found = {}
        for pack, result in zip(
            packs, climb(shop, search, settings, packs, before, pause, f"{generation}/{level}"), strict=True
        ):
            for place, number in enumerate(pack):
                if isinstance(result, str):
                    judged[number] = Judged(None, judged[number].way, note=result)
                    continue
                found[number] = result.so_far[place]
                before[number] = result.reached, place
                way = {**judged[number].way, pause or problem.trajectories: result.so_far[place]}
                note = f"{result.diverged[place]} seeds diverged" if result.diverged[place] else ""
                judged[number] = Judged(result.values[place], way, note=note)
        if pause is not None:
            best = sorted(found, key=lambda number: (-found[number], number))
            stay = set(best[: -(-len(best) // 2)])
            for number in set(best) - stay:
                judged[number] = judged[number]._replace(pruned=True)
            packs = [kept for pack in packs if (kept := [number for number in pack if number in stay])]
    return judged


def climb(
    shop: Workshop,
    search: Search,
    settings: Sequence[Mapping[str, Any]],
    packs: Sequence[Sequence[int]],
    before: Mapping[int, tuple[bytes, int]],
    pause: int | None,
    name: str,
) -> list[Found | str]:
    """The packs up to a rung; what went wrong for one that keeps failing."""
    names = [f"trials/{name}/{number}" for number in range(len(packs))]
    chosen = [[dict(settings[number]) for number in pack] for pack in packs]
    found = [read(shop.root / file, trials) for file, trials in zip(names, chosen, strict=True)]
    parts = {}
    for file, pack, trials, there in zip(names, packs, chosen, found, strict=True):
        reached, kept = (before[pack[0]][0], [before[n][1] for n in pack]) if before else (None, [])
        if there is None:
            work = partial(run_pack, search.problem, trials, pause, reached, kept)
            parts[file] = Part(work, partial(keep, shop.root / file, trials), str(trials))
    failed: Mapping[str, str] = {}
    try:
        shop.do(parts, len(packs), drop=False)  # the next rung has the same shapes
    except PartsFailed as error:
        failed = error.failed
    return [read(shop.root / file, trials) or failed[file] for file, trials in zip(names, chosen, strict=True)]


def keep(file: Path, trials: Sequence[Any], found: Found) -> None:
    """The state first, so that what has the numbers has the state too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(file.with_suffix(".state"), lambda part: Path(part).write_bytes(found.reached))
    files.write_json(
        file.with_suffix(".json"), {"trials": trials, "found": found._replace(reached=b"")._asdict() | {"reached": ""}}
    )


def read(file: Path, trials: Sequence[Any]) -> Found | None:
    """What is kept of these trials; None where there is nothing, or what another search or machine has packed."""
    if not file.with_suffix(".json").exists():
        return None
    content = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    if content["trials"] != as_json(trials):
        return None
    return Found(**content["found"] | {"reached": file.with_suffix(".state").read_bytes()})


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's remarks on what is experimental in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
