"""Checkpoints: the complete state of a run, written regularly and validated before use.

A checkpoint is one safetensors file with the states and rows of every block of runs. It is written under a temporary name,
flushed to disk and renamed. It contains a checksum and the fingerprint of the run's config.json. The last two are kept. A file
that is truncated, altered, or from another run is reported and skipped, and the previous one is used. If none can be used, an
error is raised: the run is never silently restarted.
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

from stormpg import files, windows
from stormpg.engine.budget import LIMIT
from stormpg.engine.iteration import State
from stormpg.engine.metrics import Row
from stormpg.errors import InputError, legible, tell

KEPT = 2
PATTERN = "checkpoint-*.safetensors"
FORMATS = ("2", "3", "4")  # the formats that can be read
SECONDS = 60.0  # between two checkpoints, by default
LOCK = ".lock"  # the lock file in a folder, held by the process that writes there


class CheckpointInterval(NamedTuple):
    """The longest interval between two checkpoints. None: no limit."""

    seconds: float | None = SECONDS
    iterations: int | None = None


class Reached(NamedTuple):
    """The progress of a block of runs."""

    states: State
    rows: Sequence[Row]  # consecutive parts, each [iterations, runs]


def joined(rows: Sequence[Row]) -> Row:
    """Concatenate consecutive parts of the rows."""
    whole: Row = jax.tree.map(lambda *parts: np.concatenate(parts), *rows)
    return whole


class Keeper:
    """Holds the progress of every block and writes checkpoints at the given interval. Thread-safe."""

    def __init__(
        self, folder: Path, fingerprint: str, interval: CheckpointInterval, resumed: Mapping[int, Reached] | None = None
    ) -> None:
        self.folder, self.fingerprint, self.interval = folder, fingerprint, interval
        self.blocks: dict[int, Reached] = dict(resumed or {})
        for left in folder.glob(f".{PATTERN}.part"):  # from a process that was killed while writing
            left.unlink()
        self.number = max((number_of(file) for file in folder.glob(PATTERN)), default=-1) + 1
        self.lock = threading.Lock()
        self.written, self.iterations = time.monotonic(), self.count()

    def count(self) -> int:
        """The number of iterations of the run that is furthest ahead."""
        return max((int(reached.states.iteration.max()) for reached in self.blocks.values()), default=0)

    def reach(self, block: int, states: State, rows: Sequence[Row]) -> None:
        """Record the progress of a block, and write a checkpoint if one is due."""
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
        """Delete the checkpoints of a run that is complete."""
        for file in self.folder.glob(PATTERN):
            file.unlink()


def number_of(file: Path) -> int:
    """The number in the name of a checkpoint file, or -1 if the name has none."""
    digits = file.stem.removeprefix("checkpoint-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1


def last_good(folder: Path, fingerprint: str, likes: Callable[[int], State]) -> dict[int, Reached]:
    """Return the content of the newest valid checkpoint, or an empty dict if there are no checkpoints.

    `likes(block)` gives the shapes of a block's states. Raises InputError if there are checkpoints but none can be used.
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
            tell(f"{reason} The earlier {file.name} is used instead.")
        return found
    if refused:
        raise InputError(
            f"{' '.join(refused)} No checkpoint in {folder} can be used: delete them to start the run from the beginning."
        )
    return {}


def read(file: Path, fingerprint: str, likes: Callable[[int], State]) -> dict[int, Reached]:
    """Read a checkpoint. Raises InputError with the name of the file if it is not valid."""
    tensors, about = files.read_tensors(file)
    if about.get("kind") != "stormpg checkpoint" or about.get("run") != fingerprint:
        raise InputError(f"{file} is a checkpoint of another run.")
    if about.get("format") not in FORMATS:
        raise InputError(
            f"{file} has the format {about.get('format')}; this version reads {', '.join(FORMATS[:-1])} and {FORMATS[-1]}."
        )
    found: dict[int, Reached] = {}
    for block in sorted({name.split("/", 1)[0] for name in tensors}):
        if not (block.isascii() and block.isdigit() and len(block) < 9):
            raise InputError(f"{file} has a part {block!r}; expected the number of a block.")
        rows = _rows(_below(tensors, f"{block}/rows/"), file)
        taken = np.asarray(rows.steps * rows.live).sum(axis=0)
        like = likes(int(block))
        states = files.fill(like, upgraded(_below(tensors, f"{block}/states/"), taken, like), file)
        if rows.live.shape[1] != len(states.trajectories):
            raise InputError(f"{file} does not hold the rows of {len(states.trajectories)} runs.")
        found[int(block)] = Reached(states, (rows,))
    return found


def upgraded(states: dict[str, np.ndarray], taken: np.ndarray, like: State) -> dict[str, np.ndarray]:
    """Convert stored states to the current format.

    Format 2 and earlier did not store the number of steps, which is the sum over the rows (`taken`). In format 3 and earlier,
    states were always saved between two epochs, and one rate, that of the last large batch, was stored for all schedules.
    Windows of format 4 first held the logarithms of their cumulative ratios.
    """
    if "iteration" not in states:
        return states
    rest = {"steps": np.minimum(taken, LIMIT).astype(states["iteration"].dtype)}
    if "large_rate" in states:
        zeros = [(name, np.zeros(leaf.shape, leaf.dtype)) for name, leaf in files.leaves_like(like.schedule, "schedule")]
        rest |= {name: states["large_rate"] if np.issubdtype(x.dtype, np.floating) else x for name, x in zeros}
    windows_of_before = {
        name.removesuffix("/step") for name, _ in files.leaves_like(like.memory, "memory") if name.endswith("ratios/step")
    } & states.keys()
    for name in windows_of_before:  # they held logarithms
        states = {key: value for key, value in states.items() if key != name} | {
            f"{name}/{part}": values for part, values in windows.from_logarithms(states[name])._asdict().items()
        }
    return {**rest, **states}


def _below(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The tensors whose names start with `prefix`, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _rows(columns: Mapping[str, np.ndarray], file: Path) -> Row:
    shapes = {value.shape for value in columns.values()}
    own = {name: value for name, value in columns.items() if not name.startswith("info/")}
    if set(own) != set(Row._fields) - {"info"} or len(shapes) != 1 or len(shapes.pop()) != 2:
        raise InputError(f"{file} does not hold the rows of a run.")
    info = {name.removeprefix("info/"): value for name, value in columns.items() if name not in own}
    return Row(**own, info=info)  # type: ignore[arg-type]


def fingerprint(config: Mapping[str, Any]) -> str:
    """A hash that identifies a run: of everything in its config.json except versions and device."""
    same = {name: value for name, value in config.items() if name not in ("versions", "device")}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock a folder for this process. The folder is created if it does not exist.

    The operating system releases the lock when the process ends, even if it is killed.
    """
    import filelock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise InputError(f"another process is writing to {folder}: wait for it, or give another folder.") from None
    except (OSError, NotImplementedError) as error:  # filelock raises NotImplementedError if the file system has no locks
        raise InputError(f"{folder} cannot be written ({error}): give another folder.") from None
    try:
        yield
    finally:
        lock.release()
