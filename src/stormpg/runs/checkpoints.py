"""Checkpoints: the whole state of a run, written often enough that little is lost, and never trusted unread.

A checkpoint is one safetensors file with what every block of runs has reached: its states and its rows. It is written
beside its name, flushed to the disk and renamed; it carries a checksum and the fingerprint of the run's config.json; the
last two are kept. A file that is cut short, altered, or of another run is named and passed over for the one before it; where
none can be used, the run is not started again in silence.
"""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg import files
from stormpg.engine.iteration import LIMIT, Row, State
from stormpg.errors import InputError, legible, tell

KEPT = 2
PATTERN = "checkpoint-*.safetensors"
FORMATS = ("2", "3", "4")  # that can be read
LOCK = ".lock"  # the file in a folder that its owner holds


class CheckpointInterval(NamedTuple):
    """How long at most between two checkpoints; None: does not matter."""

    seconds: float | None = 60.0
    iterations: int | None = None


class Reached(NamedTuple):
    """What a block of runs has reached."""

    states: State
    rows: Sequence[Row]  # each [iterations, runs], one after the other


def joined(rows: Sequence[Row]) -> Row:
    """Rows after rows, as one."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *rows)


class Keeper:
    """Keeps what every block has reached, and writes it when it is time. For several threads."""

    def __init__(
        self, folder: Path, fingerprint: str, interval: CheckpointInterval, begun: Mapping[int, Reached] | None = None
    ) -> None:
        self.folder, self.fingerprint, self.interval = folder, fingerprint, interval
        self.blocks: dict[int, Reached] = dict(begun or {})
        for left in folder.glob(f".{PATTERN}.part"):  # by a process that was killed while it wrote
            left.unlink()
        self.number = max((number_of(file) for file in folder.glob(PATTERN)), default=-1) + 1
        self.lock = threading.Lock()
        self.written, self.iterations = time.monotonic(), self.count()

    def count(self) -> int:
        """Iterations of the run that is farthest."""
        return max((int(reached.states.iteration.max()) for reached in self.blocks.values()), default=0)

    def reach(self, block: int, states: State, rows: Sequence[Row]) -> None:
        """A block has got farther."""
        with self.lock:
            late = self.interval.seconds is not None and time.monotonic() - self.written >= self.interval.seconds
            self.blocks[block] = Reached(states, tuple(rows))
            far = self.interval.iterations is not None and self.count() - self.iterations >= self.interval.iterations
            if late or far:
                self._write()

    def write(self) -> None:
        """Write a checkpoint now."""
        with self.lock:
            if self.blocks:
                self._write()

    def _write(self) -> None:
        tensors = {
            f"{block}/{part}/{name}": leaf
            for block, reached in self.blocks.items()
            for part, tree in (("states", reached.states), ("rows", joined(reached.rows)))
            for name, leaf in files.leaves(tree)
        }
        about = {"kind": "stormpg checkpoint", "format": str(files.FORMAT), "run": self.fingerprint}
        files.write_tensors(self.folder / f"checkpoint-{self.number}.safetensors", tensors, about)
        self.number += 1
        self.written, self.iterations = time.monotonic(), self.count()
        for old in sorted(self.folder.glob(PATTERN), key=number_of)[:-KEPT]:
            old.unlink()

    def finish(self) -> None:
        """The run is whole: its checkpoints are not needed any more."""
        for file in self.folder.glob(PATTERN):
            file.unlink()


def number_of(file: Path) -> int:
    digits = file.stem.removeprefix("checkpoint-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1


def last_good(folder: Path, fingerprint: str, likes: Callable[[int], State]) -> dict[int, Reached]:
    """What the newest checkpoint that can be trusted holds; nothing where none was written. `likes`: a block's shapes.

    InputError where there are some and none of them can be used.
    """
    refused: list[str] = []
    for file in sorted(folder.glob(PATTERN), key=number_of, reverse=True):
        try:
            with legible(str(file)):
                found = read(file, fingerprint, likes)
        except InputError as error:
            refused.append(str(error))
            continue
        for reason in refused:
            tell(f"{reason} {file.name}, written before it, is used.")
        return found
    if refused:
        raise InputError(
            f"{' '.join(refused)} No checkpoint of {folder} can be used: delete them to start it again from nothing."
        )
    return {}


def read(file: Path, fingerprint: str, likes: Callable[[int], State]) -> dict[int, Reached]:
    """A checkpoint; InputError that names the file where it cannot be trusted."""
    tensors, about = files.read_tensors(file)
    if about.get("kind") != "stormpg checkpoint" or about.get("run") != fingerprint:
        raise InputError(f"{file} is a checkpoint of another run.")
    if about.get("format") not in FORMATS:
        raise InputError(
            f"{file} has the format {about.get('format')}; this version reads {', '.join(FORMATS[:-1])} and {FORMATS[-1]}."
        )
    found = {}
    for block in sorted({name.split("/", 1)[0] for name in tensors}):
        if not (block.isascii() and block.isdigit() and len(block) < 9):
            raise InputError(f"{file} has a part {block!r}; expected the number of a block.")
        mine = lambda part, block=block: dict(_below(tensors, f"{block}/{part}/"))
        rows = _rows(mine("rows"), file)
        taken = np.asarray(rows.steps * rows.live).sum(axis=0)
        like = likes(int(block))
        states = files.fill(like, upgraded(mine("states"), taken, like), file)
        if rows.live.shape[1] != len(states.trajectories):
            raise InputError(f"{file} does not hold the rows of {len(states.trajectories)} runs.")
        found[int(block)] = Reached(states, (rows,))
    return found


def upgraded(states: dict[str, np.ndarray], taken: np.ndarray, like: State) -> dict[str, np.ndarray]:
    """Stored states as this version has them.

    Those of format 2 and before did not count their steps, which are the sum of their rows'. Those of format 3 and before were
    between two epochs, and had the rate of the last large batch for all schedules.
    """
    if "iteration" not in states:
        return states
    rest = {"steps": np.minimum(taken, LIMIT).astype(states["iteration"].dtype)}
    if "large_rate" in states:
        zeros = [(name, np.zeros(leaf.shape, leaf.dtype)) for name, leaf in files.leaves_like(like.schedule, "schedule")]
        rest |= {name: states["large_rate"] if np.issubdtype(x.dtype, np.floating) else x for name, x in zeros}
    return {**rest, **states}


def _below(tensors: Mapping[str, np.ndarray], prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    return ((name.removeprefix(prefix), value) for name, value in tensors.items() if name.startswith(prefix))


def _rows(columns: Mapping[str, np.ndarray], file: Path) -> Row:
    shapes = {value.shape for value in columns.values()}
    own = {name: value for name, value in columns.items() if not name.startswith("info/")}
    if set(own) != set(Row._fields) - {"info"} or len(shapes) != 1 or len(shapes.pop()) != 2:
        raise InputError(f"{file} does not hold the rows of a run.")
    info = {name.removeprefix("info/"): value for name, value in columns.items() if name not in own}
    return Row(**own, info=info)  # type: ignore[arg-type]


def fingerprint(config: Mapping[str, Any]) -> str:
    """Of what makes a run this run: everything in its config.json but versions and device."""
    same = {name: value for name, value in config.items() if name not in ("versions", "device")}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """One process at a time works on a folder, which is made where it is missing.

    The system lets go of it when the process ends, however it ends.
    """
    import filelock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise InputError(f"another process is writing to {folder}: wait for it, or give another folder.") from None
    except (OSError, NotImplementedError) as error:  # filelock raises the second where a file system has no locks
        raise InputError(f"{folder} cannot be written ({error}): give another folder.") from None
    try:
        yield
    finally:
        lock.release()
