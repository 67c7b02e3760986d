"""The search's study in an Optuna storage: opened, asked for trials, told what came of them."""

import contextlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stormpg.errors import InputError, legible, shown
from stormpg.files.reading import size_of
from stormpg.runs.options import without_secrets
from stormpg.tune.halving import Judged
from stormpg.tune.plan import Search
from stormpg.tune.space import distributions, within

COMPUTES = re.compile(r"create\s+virtual|generated\s+always|\bas\s*\(")  # in a table's definition


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
        held = study.user_attrs.get("about", {})
    same_search(name, held, about)
    return study


def same_search(name: str, held: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """InputError where a study was started for something else."""
    for key in sorted(about.keys() | held.keys()):
        if held.get(key) != about.get(key):
            raise InputError(
                f"the study {shown(name)} has {shown(key)} = {shown(held.get(key))}; asked for {shown(about.get(key))}. "
                "Give another --study name, or another folder with --out."
            )


def read_study(file: Path, name: str, about: Mapping[str, Any], direction: str) -> Any:
    """A copy in memory of the study of this name in an SQLite file, which may be anybody's; InputError where it is not one."""
    check_database(file)
    url = f"sqlite:///{file}"
    with legible(str(file)), stored(url):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage = optuna.storages.get_storage(url)
        try:
            held = optuna.load_study(storage=storage, study_name=name)
            same_search(name, held.user_attrs.get("about", {}), about)
            copy = optuna.create_study(study_name=name, direction=direction)
            with quiet():
                copy.add_trials(held.get_trials(deepcopy=False))  # which checks each of them
        finally:
            storage.remove_session()
            getattr(storage, "_backend", storage).engine.dispose()
    return copy


def check_database(file: Path) -> None:
    """InputError where an SQLite file is damaged, or has what computes when it is looked at: views, triggers and the like."""
    import sqlite3

    size_of(file, "the trials of a search")
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            schema = database.execute("SELECT type, name, lower(coalesce(sql, '')) FROM sqlite_master").fetchall()
            alive = [name for kind, name, sql in schema if kind not in ("table", "index") or COMPUTES.search(sql)]
            if alive:
                raise InputError(f"{file} has {shown(alive[0])}, which is no plain table and no index: it is not opened.")
            told = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not an SQLite database, or is damaged ({error}).") from None
    if told != "ok":
        raise InputError(f"{file} is damaged: {shown(told)}.")


def close(study: Any) -> None:
    """Let go of the study's storage: a server's connections are few."""
    storage = getattr(study._storage, "_backend", study._storage)
    study._storage.remove_session()
    if hasattr(storage, "engine"):
        storage.engine.dispose()


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


def tell(study: Any, search: Search, member: Any, found: Judged) -> None:
    """What came of a trial. Optuna is told how good it was on the way, too."""
    from optuna.trial import Trial, TrialState

    with quiet():
        one = Trial(study, member._trial_id)
        if found.value is None or not math.isfinite(found.value):
            one.set_user_attr("error", found.note or f"its value is {found.value}")
            study.tell(one, state=TrialState.FAIL)
            return
        sign = -1.0 if search.problem.objective.direction == "minimize" else 1.0
        for trajectories, good in found.way.items():
            one.report(sign * good, trajectories)
        if found.note:
            one.set_user_attr("note", found.note)
        study.tell(one, None if found.pruned else found.value, TrialState.PRUNED if found.pruned else None)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's remarks on what is experimental in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
