"""Successive halving inside a generation: at each rung the better half of the remaining trials continues."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stormpg import files
from stormpg.errors import InputError, PartsFailed, legible
from stormpg.files.reading import read_object
from stormpg.studies.workspace import Part, Workspace
from stormpg.tune.packed_trials import Found, packed, run_pack, trial
from stormpg.tune.plan import Search


class Judged(NamedTuple):
    """The result of a trial at the end of its generation."""

    value: float | None  # None: the trial failed
    scores: dict[int, float]  # the score at each rung, by the trajectories there; larger is better
    pruned: bool = False
    note: str = ""


def halved(workspace: Workspace, search: Search, settings: Sequence[Mapping[str, Any]], generation: int) -> list[Judged]:
    """Run all trials of a generation. At each rung the better half of the remaining trials continues."""
    problem, judged = search.problem, [Judged(None, {}) for _ in settings]
    alive = []
    for number, setting in enumerate(settings):
        try:
            trial(problem, setting)
            alive.append(number)
        except InputError as error:
            judged[number] = Judged(None, {}, note=str(error))
    rungs: list[int | None] = [max(int(share * problem.trajectories), 1) for share in search.rungs]
    packs = [[alive[i] for i in pack] for pack in packed(problem, [settings[n] for n in alive])]
    before: dict[int, tuple[bytes, int]] = {}  # for each trial: the state of its pack at the last rung, its place in that pack
    for level, pause in enumerate([*rungs, None]):
        found = {}
        results = run_to_rung(workspace, search, settings, packs, before, pause, f"{generation}/{level}")
        for pack, result in zip(packs, results, strict=True):
            for place, number in enumerate(pack):
                if isinstance(result, str):
                    judged[number] = Judged(None, judged[number].scores, note=result)
                    continue
                found[number] = result.so_far[place]
                before[number] = result.reached, place
                scores = {**judged[number].scores, pause or problem.trajectories: result.so_far[place]}
                note = f"{result.diverged[place]} seeds diverged" if result.diverged[place] else ""
                judged[number] = Judged(result.values[place], scores, note=note)
        if pause is not None:
            best = sorted(found, key=lambda number: (-found[number], number))
            stay = set(best[: -(-len(best) // 2)])
            for number in set(best) - stay:
                judged[number] = judged[number]._replace(pruned=True)
            packs = [kept for pack in packs if (kept := [number for number in pack if number in stay])]
    return judged


def run_to_rung(
    workspace: Workspace,
    search: Search,
    settings: Sequence[Mapping[str, Any]],
    packs: Sequence[Sequence[int]],
    before: Mapping[int, tuple[bytes, int]],
    pause: int | None,
    name: str,
) -> list[Found | str]:
    """Run the packs up to a rung. For a pack that keeps failing, return the error message."""
    names = [f"trials/{name}/{number}" for number in range(len(packs))]
    chosen = [[dict(settings[number]) for number in pack] for pack in packs]
    found = [read(workspace.root / file, trials) for file, trials in zip(names, chosen, strict=True)]
    parts = {}
    for file, pack, trials, stored in zip(names, packs, chosen, found, strict=True):
        reached, kept = (before[pack[0]][0], [before[n][1] for n in pack]) if before else (None, [])
        if stored is None:
            work = partial(run_pack, search.problem, trials, pause, reached, kept)
            parts[file] = Part(work, partial(keep, workspace.root / file, trials), str(trials))
    failed: Mapping[str, str] = {}
    try:
        workspace.do(parts, len(packs), drop=False)  # the next rung has the same shapes
    except PartsFailed as error:
        failed = error.failed
    return [read(workspace.root / file, trials) or failed[file] for file, trials in zip(names, chosen, strict=True)]


def keep(file: Path, trials: Sequence[Any], found: Found) -> None:
    """Write the state before the results, so that stored results always have their state."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(file.with_suffix(".state"), found.reached)
    files.write_json(file.with_suffix(".json"), {"trials": trials, "found": found._asdict() | {"reached": ""}})


def read(file: Path, trials: Sequence[Any]) -> Found | None:
    """The stored results of these trials. None if there are none, or if another search or machine has packed other trials."""
    if not file.with_suffix(".json").exists():
        return None
    content = read_object(file.with_suffix(".json"), "the results of some trials")
    if content.get("trials") != files.as_json(trials):
        return None
    with legible(f"{file}.json"):
        return Found(**content["found"] | {"reached": file.with_suffix(".state").read_bytes()})
