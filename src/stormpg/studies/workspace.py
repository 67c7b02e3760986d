"""Execution and storage of the parts of a study.

Several parts run at once on the study's workers. Each result is written by this process, completely or not at all. Existing
parts are not computed again. A part that fails is retried and then reported, and does not stop the others.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stormpg import files
from stormpg.errors import InputError, PartsFailed
from stormpg.files.reading import read_json
from stormpg.machine import retries
from stormpg.machine.stopping import Halted, Stop, add_note, completed, listening, whole_study
from stormpg.runs.table import Columns
from stormpg.studies.work_units import Unit, compute_unit, drop_programs, keep_unit, read_unit
from stormpg.studies.workers import GROUP, OnRay, Processes, ThisMachine, stop

Report = Callable[[str, int, int], None]  # the name of a part, number of parts done, total number of parts


class Part(NamedTuple):
    """A part of a study."""

    work: Callable[[], Any]  # runs on any worker
    keep: Callable[[Any], None]  # runs in this process, with the result of `work`
    about: str = ""  # added to the error message if it fails


@dataclasses.dataclass(frozen=True)
class Workspace:
    """The folder of a study, with a progress function, whether parts may be run, and the workers that run them."""

    root: Path
    report: Report | None = None
    train: bool = True  # False: a missing part is an error
    workers: ThisMachine | Processes | OnRay = dataclasses.field(default_factory=ThisMachine)

    def run(self, units: Sequence[Unit]) -> list[Columns]:
        """Run the missing units, and return the tables of all. Existing units are checked before anything is run."""
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
        """Return the content of the JSON files with these names. Missing ones are measured and written."""
        missing = {name: work for name, work in measures.items() if not (self.root / name).exists()}
        parts = {name: Part(work, partial(write_measured, self.root / name)) for name, work in missing.items()}
        self.do(parts, len(measures), group)
        return [read_json(self.root / name, "a measured part of a study") for name in measures]

    def do(self, parts: Mapping[str, Part], count: int, group: int = GROUP, drop: bool = True) -> None:
        """Run the missing parts of `count`, several at once. `drop`: drop this process's compiled programs after each group."""
        if parts and not self.train:
            raise InputError(f"{self.root / next(iter(parts))} is missing ({len(parts)} parts in total): run the study again.")
        names, done, failed, study = list(parts), count - len(parts), dict[str, Exception](), Stop()
        threads = self.workers.in_groups  # threads see a stop request; other processes do not
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
                        f"a process that worked on {self.root} died, possibly out of memory. Finished parts are kept: "
                        "run the same command again."
                    ) from None
                except BaseException as error:
                    study.request(None if isinstance(error, Halted) else error)
                    stop(pool)
            if study.error is not None:
                add_note(study.error, f"Finished parts are kept in {self.root}: run the same command again to resume.")
                raise study.error
            if threads and drop:
                drop_programs()
        if failed:
            why = {name: f"{parts[name].about} {type(e).__name__}: {e}".strip() for name, e in failed.items()}
            told = "; ".join(f"{name} {words}" for name, words in why.items())
            raise PartsFailed(f"{len(failed)} of {count} parts of {self.root} failed, the others are kept: {told}", why)


def each(pool: Executor, parts: Mapping[str, Part], failed: dict[str, Exception]) -> Iterator[str]:
    """Run the parts and yield the name of each as it is stored. Parts that keep failing are put into `failed`."""
    attempts = dict.fromkeys(parts, 1)
    pending: dict[Future[Any], str] = {pool.submit(part.work): name for name, part in parts.items()}
    while pending:
        waiting, pending = pending, {}
        for future in completed(waiting):
            name = waiting[future]
            try:
                found = future.result()
            except (BrokenProcessPool, Halted):
                raise
            except Exception as error:
                if attempts[name] == retries.PARTS or isinstance(error, InputError):  # an InputError would be raised again
                    failed[name] = getattr(error, "cause", None) or error  # on Ray: the error without its remote traceback
                else:
                    attempts[name] += 1
                    pending[pool.submit(parts[name].work)] = name
                continue
            parts[name].keep(found)
            yield name


def write_measured(file: Path, content: Any) -> None:
    """Write a measurement as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(file, content)
