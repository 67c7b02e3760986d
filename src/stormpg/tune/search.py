"""The search: generations of trials, asked of Optuna, halved on the way, told in order.

Nothing depends on who does the work, or when: a generation is asked for as a whole, the sampler has a seed of its own for each
trial, and results are told by number. So a search on a cluster, or one that was interrupted, is the search in one go.
"""

import contextlib
import dataclasses
import json
import logging
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stormpg import files
from stormpg.errors import InputError, PartsFailed
from stormpg.experiments.workshop import Part, Workshop, drop_programs
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


def open_study(url: str, name: str, about: Mapping[str, Any], direction: Any) -> Any:
    """The study of this name in an Optuna storage, begun where there is none; InputError where it is of something else."""
    try:
        import optuna
        import sqlalchemy.exc
    except ImportError:
        raise InputError('Optuna is not installed: pip install "stormpg[tune]".') from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("optuna").setLevel(logging.ERROR)
    try:
        storage = optuna.storages.RDBStorage(url, skip_table_creation=False)
        study = optuna.create_study(storage=storage, study_name=name, direction=direction, load_if_exists=True)
        held = study.user_attrs.get("about")
        if held is None and not study.trials:
            study.set_user_attr("about", dict(about))
            held = dict(about)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError, optuna.exceptions.StorageInternalError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"the storage {hidden(url)} cannot be used: {reason} Give an address such as sqlite:///FILE."
        ) from None
    asked = json.loads(json.dumps(about))
    for key in sorted(asked.keys() | (held or {}).keys()):
        if (held or {}).get(key) != asked.get(key):
            raise InputError(
                f"the study {name!r} has {key} = {str((held or {}).get(key))[:80]}; asked for {str(asked.get(key))[:80]}. "
                "Give another --study name, or another folder with --out."
            )
    return study


def close(study: Any) -> None:
    """Let go of the study's storage: a server's connections are few."""
    storage = getattr(study._storage, "_backend", study._storage)
    storage.remove_session()
    storage.engine.dispose()


def hidden(url: str) -> str:
    """An address without its password."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else url


def owner_of(folder: Path) -> str:
    """The name under which this folder asks for trials, which outlives the process."""
    file = folder / OWNER
    if not file.exists():
        files.write_text(file, uuid.uuid4().hex)
    return file.read_text(encoding="utf-8").strip()


def run(shop: Workshop, search: Search, study: Any, alone: bool) -> None:
    """Generation after generation until there are enough trials. `alone`: nobody else asks for trials of this study."""
    owner = owner_of(shop.root)
    while True:
        mine = [t for t in trials_of(study) if t.user_attrs.get("owner") == owner]
        begun = [t.user_attrs["generation"] for t in mine if not t.state.is_finished()]
        if not begun and sum(t.state.is_finished() for t in trials_of(study)) >= search.trials:
            return
        number = min(begun) if begun else 1 + max((t.user_attrs["generation"] for t in mine), default=-1)
        judge(shop, search, study, asked(study, search, owner, alone, number), number)
        shutil.rmtree(shop.root / "trials", ignore_errors=True)
        if number % GENERATIONS == GENERATIONS - 1:
            drop_programs()


def trials_of(study: Any) -> list[Any]:
    return study.get_trials(deepcopy=False)


def asked(study: Any, search: Search, owner: str, alone: bool, generation: int) -> list[Any]:
    """The trials of a generation: those that are there, and the rest of it from the sampler."""
    import optuna

    own = {"generation": generation, "owner": owner}
    mine = lambda: [t for t in trials_of(study) if own.items() <= t.user_attrs.items()]
    with quiet():
        for orphan in (t for t in trials_of(study) if alone and "owner" not in t.user_attrs):  # it was killed while it asked
            adopt(study, orphan, own, search.space)
        size = min(search.generation, max(search.trials - len(trials_of(study)) + len(mine()), len(mine())))
        while len(mine()) < size:
            number = len(trials_of(study))
            sampler = optuna.samplers.TPESampler(seed=search.seed + number, constant_liar=True)
            known = {name: value for name, value in search.first.items() if within(search.space, name, value)}
            study.sampler = sampler if number else optuna.samplers.PartialFixedSampler(known, sampler)
            mark(study.ask(distributions(search.space)), own)
    return sorted(mine(), key=lambda t: t.number)


def mark(one: Any, own: Mapping[str, Any]) -> None:
    for name, value in own.items():
        one.set_user_attr(name, value)


def adopt(study: Any, orphan: Any, own: Mapping[str, Any], space: Space) -> None:
    """A trial that has its settings, but not yet its generation; one that has not got them all is given up."""
    from optuna.trial import Trial

    if set(orphan.params) == set(space):
        mark(Trial(study, orphan._trial_id), own)
    elif not orphan.state.is_finished():
        tell_failed(study, orphan, "its search was killed as it began")


def judge(shop: Workshop, search: Search, study: Any, members: Sequence[Any], generation: int) -> None:
    """Run a generation rung by rung, and tell what came of it."""
    from optuna.trial import Trial, TrialState

    settings = [{**search.fixed, **member.params} for member in members]
    judged = halved(shop, search, settings, generation)
    with quiet():
        for member, found in zip(members, judged, strict=True):
            if member.state.is_finished():
                continue
            if found.value is None:
                tell_failed(study, member, found.note)
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
    parts = {}
    for file, pack in zip(names, packs, strict=True):
        reached, kept = (before[pack[0]][0], [before[n][1] for n in pack]) if before else (None, [])
        chosen = [dict(settings[number]) for number in pack]
        if not (shop.root / f"{file}.json").exists():
            work = partial(run_pack, search.problem, chosen, pause, reached, kept)
            parts[file] = Part(work, partial(keep, shop.root / file), str(chosen))
    failures = ""
    try:
        shop.do(parts, len(packs), drop=False)  # the next rung has the same shapes
    except PartsFailed as error:
        failures = str(error)
    return [read(shop.root / file) or failures for file in names]


def keep(file: Path, found: Found) -> None:
    """The state first, so that what has the numbers has the state too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(file.with_suffix(".state"), lambda part: Path(part).write_bytes(found.reached))
    files.write_json(file.with_suffix(".json"), found._replace(reached=b"")._asdict() | {"reached": None})


def read(file: Path) -> Found | None:
    if not file.with_suffix(".json").exists():
        return None
    content = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    return Found(**content | {"reached": file.with_suffix(".state").read_bytes()})


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's remarks on what is experimental in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
