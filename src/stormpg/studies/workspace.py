"""Where the parts of a study are kept, and how they are done: several at once, by whoever works on it.

A part is computed somewhere and written here, whole or not at all. What is there is not computed again; one that fails is tried
again, then named, and does not keep the others from being done.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stormpg import files
from stormpg.errors import InputError, PartsFailed
from stormpg.files.reading import read_json
from stormpg.machine.stopping import Halted, Stop, add_note, completed, listening, whole_study
from stormpg.runs.table import Columns
from stormpg.studies.units import Unit, compute_unit, drop_programs, keep_unit, read_unit
from stormpg.studies.workers import GROUP, Here, OnRay, stop

Report = Callable[[str, int, int], None]  # the name of a part, parts done, parts in all
ATTEMPTS = 2  # at a part that raises an error


class Part(NamedTuple):
    """What is to be done."""

    work: Callable[[], Any]  # anywhere
    keep: Callable[[Any], None]  # here, with what `work` gave
    about: str = ""  # what to say of it where it fails


@dataclasses.dataclass(frozen=True)
class Workspace:
    """The folder of a study, who is told of its progress, whether anything may be run, and by whom."""

    root: Path
    report: Report | None = None
    train: bool = True  # False: a part that is missing is an error
    workers: Here | OnRay = dataclasses.field(default_factory=Here)

    def run(self, units: Sequence[Unit]) -> list[Columns]:
        """The tables of all units. What is there is checked before anything is run."""
        missing = [unit for unit in units if not (self.root / unit.folder).exists()]
        for unit in units:
            if unit not in missing:
                read_unit(unit, self.root)
        parts = {
            unit.folder: Part(partial(compute_unit, unit), partial(keep_unit, unit, self.root), str(list(unit.settings)))
            for unit in missing
        }
        self.do(parts, len(units))
        return [read_unit(unit, self.root) for unit in units]

    def measure(self, measures: Mapping[str, Callable[[], Any]], group: int = 2) -> list[Any]:
        """What the JSON files of these names hold; measured and written where there is none."""
        missing = {name: work for name, work in measures.items() if not (self.root / name).exists()}
        parts = {name: Part(work, partial(write_measured, self.root / name)) for name, work in missing.items()}
        self.do(parts, len(measures), group)
        return [read_json(self.root / name, "a measured part of a study") for name in measures]

    def do(self, parts: Mapping[str, Part], count: int, group: int = GROUP, drop: bool = True) -> None:
        """Some parts of `count`, several at once. `drop`: this process's programs are not needed any more after a group."""
        if parts and not self.train:
            raise InputError(f"{self.root / next(iter(parts))} is missing ({len(parts)} parts in all): run the study again.")
        names, done, failed, study = list(parts), count - len(parts), dict[str, Exception](), Stop()
        threads = self.workers.in_groups  # which see a request to stop; other processes do not
        group = group if threads else max(len(names), 1)
        for first in range(0, len(names), group):
            mine = {name: parts[name] for name in names[first : first + group]}
            with listening(study, at_once=not threads), whole_study(study), self.workers.pool(len(names)) as pool:
                try:
                    for name in each(pool, mine, failed):
                        done += 1
                        if self.report:
                            self.report(name, done, count)
                except BrokenProcessPool:
                    raise InputError(
                        f"a process that worked on {self.root} died, perhaps for lack of memory. What is done is kept: "
                        "give the command again."
                    ) from None
                except BaseException as error:
                    study.request(None if isinstance(error, Halted) else error)
                    stop(pool)
            if study.error is not None:
                add_note(study.error, f"Finished parts are kept in {self.root}: give the same command again to resume.")
                raise study.error
            if threads and drop:
                drop_programs()
        if failed:
            why = {name: f"{parts[name].about} {type(e).__name__}: {e}".strip() for name, e in failed.items()}
            told = "; ".join(f"{name} {words}" for name, words in why.items())
            raise PartsFailed(f"{len(failed)} of {count} parts of {self.root} failed, the others are kept: {told}", why)


def each(pool: Executor, parts: Mapping[str, Part], failed: dict[str, Exception]) -> Any:
    """The names of the parts as they are kept. Those that keep failing are put into `failed`."""
    attempts = dict.fromkeys(parts, 1)
    begun: dict[Future, str] = {pool.submit(part.work): name for name, part in parts.items()}
    while begun:
        waiting, begun = begun, {}
        for future in completed(waiting):
            name = waiting[future]
            try:
                found = future.result()
            except (BrokenProcessPool, Halted):
                raise
            except Exception as error:
                if attempts[name] == ATTEMPTS or isinstance(error, InputError):  # which would be the same again
                    failed[name] = getattr(error, "cause", None) or error  # on Ray: without the whole traceback
                else:
                    attempts[name] += 1
                    begun[pool.submit(parts[name].work)] = name
                continue
            parts[name].keep(found)
            yield name


def write_measured(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(file, content)
