"""The search's study in an Optuna storage: open it, request trials, report their results."""

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
from stormpg.tune.sampler import sampler
from stormpg.tune.space import distributions, within

COMPUTES = re.compile(r"create\s+virtual|generated\s+always|\bas\s*\(")  # in the definition of a table that computes values


@contextlib.contextmanager
def stored(url: str, *more: type[Exception]) -> Iterator[None]:
    """Turn the errors of a storage into an InputError of one line. `more`: further exceptions to treat as storage errors."""
    try:
        import optuna
        import sqlalchemy.exc
    except ImportError:
        raise InputError('Optuna is not installed: pip install "stormpg[tune]".') from None
    storage_errors: tuple[type[Exception], ...] = (
        sqlalchemy.exc.SQLAlchemyError,
        optuna.exceptions.StorageInternalError,
        *more,
    )
    try:
        yield
    except storage_errors as error:
        reason = " ".join(without_secrets(str(error)).split())[:300]
        raise InputError(f"the storage {without_secrets(url)} cannot be used: {reason}") from None


def open_study(url: str, name: str, about: Mapping[str, Any], direction: Any) -> Any:
    """Open the study of this name in an Optuna storage, or create it. InputError if it belongs to another search."""
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
    """InputError if a study was started for another search."""
    for key in sorted(about.keys() | held.keys()):
        if held.get(key) != about.get(key):
            raise InputError(
                f"the study {shown(name)} has {shown(key)} = {shown(held.get(key))}; asked for {shown(about.get(key))}. "
                "Give another --study name, or another folder with --out."
            )


def read_study(file: Path, name: str, about: Mapping[str, Any], direction: str) -> Any:
    """Read the study of this name from an untrusted SQLite file into memory. InputError if that fails."""
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
                copy.add_trials(held.get_trials(deepcopy=False))  # this validates each trial
        finally:
            storage.remove_session()
            getattr(storage, "_backend", storage).engine.dispose()
    return copy


def check_database(file: Path) -> None:
    """InputError if an SQLite file is damaged, or has views, triggers or other objects that compute something when read."""
    import sqlite3

    size_of(file, "the trials of a search")
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            schema = database.execute("SELECT type, name, lower(coalesce(sql, '')) FROM sqlite_master").fetchall()
            active = [name for kind, name, sql in schema if kind not in ("table", "index") or COMPUTES.search(sql)]
            if active:
                raise InputError(
                    f"{file} has {shown(active[0])}, which is neither a plain table nor an index: it is not opened."
                )
            check = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not an SQLite database, or is damaged ({error}).") from None
    if check != "ok":
        raise InputError(f"{file} is damaged: {shown(check)}.")


def close(study: Any) -> None:
    """Close the study's connections to its storage: a server has only a few."""
    storage = getattr(study._storage, "_backend", study._storage)
    study._storage.remove_session()
    if hasattr(storage, "engine"):
        storage.engine.dispose()


def trials_of(study: Any) -> list[Any]:
    """All trials of a study."""
    trials: list[Any] = study.get_trials(deepcopy=False)
    return trials


def request_trials(study: Any, search: Search, owner: str, alone: bool, generation: int) -> list[Any]:
    """The trials of a generation: the existing ones, and new ones from the sampler up to the size of a generation.

    The sampler works on a copy of the study, so that a trial is stored with all its attributes or not at all.
    """
    import optuna

    own = {"generation": generation, "owner": owner}

    def members() -> list[Any]:
        return [t for t in trials_of(study) if own.items() <= t.user_attrs.items()]

    existing = trials_of(study)
    missing = min(search.generation - len(members()), search.trials - len(existing))
    if missing > 0:
        spaces = distributions(search.space)
        known = {name: value for name, value in search.first.items() if within(search.space, name, value)}
        # Several processes on one study each have their own stream: they may request the same trial number at the same time.
        first_seed = search.seed + (0 if alone else int(owner[:6], 16))
        with quiet():
            copy = optuna.create_study(direction=study.direction)
            copy.add_trials(existing)
            for number in range(len(existing), len(existing) + missing):
                copy.sampler = sampler(first_seed + number, None if number else known)
                params, state = copy.ask(spaces).params, optuna.trial.TrialState.RUNNING
                one = optuna.trial.create_trial(state=state, params=params, distributions=spaces, user_attrs=own)
                study.add_trial(one)
    return sorted(members(), key=lambda t: t.number)


def tell(study: Any, search: Search, member: Any, found: Judged) -> None:
    """Report the result of a trial to Optuna, with its scores at the rungs."""
    from optuna.trial import Trial, TrialState

    with quiet():
        one = Trial(study, member._trial_id)
        if found.value is None or not math.isfinite(found.value):
            one.set_user_attr("error", found.note or f"its value is {found.value}")
            study.tell(one, state=TrialState.FAIL)
            return
        sign = -1.0 if search.problem.objective.direction == "minimize" else 1.0
        for trajectories, score in found.scores.items():
            one.report(sign * score, trajectories)
        if found.note:
            one.set_user_attr("note", found.note)
        study.tell(one, None if found.pruned else found.value, TrialState.PRUNED if found.pruned else None)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide Optuna's warnings about its experimental features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
