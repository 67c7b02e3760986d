"""metrics.parquet: the table of a run's iterations as a file. Its checksum is stored in summary.json.

Before a table is loaded, its checksum is verified, and its columns, types and number of rows are checked in the file's
metadata, because a file of a few kilobytes can claim any number of rows.
"""

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stormpg.errors import InputError, legible, shown
from stormpg.files import write_file
from stormpg.files.reading import read_object, size_of
from stormpg.runs.table import NAMES, Columns

FILE, SUMMARY = "metrics.parquet", "summary.json"
CHECKSUM = "metrics_sha256"  # the entry of summary.json
FREE_ROWS = 10**6  # a table may have this many rows plus one for each byte of its file; real tables are less dense
MOST_ADDED = 100  # columns in addition to the standard ones
TEXTS = ("env", "algorithm")
FLAGS = ("large", "diverged")
COUNTS = ("setting", "seed", "iteration", "trajectories", "steps")

_one_at_a_time = threading.Lock()  # only one thread may redirect standard error


def write_metrics(columns: Columns, file: Path) -> str:
    """Write a table and return its checksum."""
    import polars

    write_file(file, lambda part: polars.DataFrame(dict(columns)).write_parquet(part))
    return checksum_of(file)


def checksum_of(file: Path) -> str:
    """The SHA-256 checksum of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_metrics(folder: Path, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Read the columns of a run's metrics.parquet, and check that they match the run's config."""
    file = folder / FILE
    size = size_of(file, "the table of a finished run")
    most = most_rows(config, size)
    if size > 2**20 + 200 * most:
        raise InputError(f"{file} has {size:,} bytes, too many for the at most {most:,} rows that config.json allows.")
    check_checksum(file)
    return checked(parsed(file, most), config, file)


def most_rows(config: Mapping[str, Any], size: int) -> int:
    """The maximum number of rows of a run's table, given its budget and the size of its file."""
    inner = max((m for s in config["settings"] if isinstance(m := s.get("m"), int)), default=0)
    each: int = (config["trajectories"] + 1) * (1 + max(inner, 0))  # an inner step may sample no trajectory
    return min(len(config["seeds"]) * len(config["settings"]) * each, FREE_ROWS + size)


def check_checksum(file: Path) -> None:
    """Raise InputError if the file was changed after it was written. Runs of earlier versions have no checksum."""
    summary = file.with_name(SUMMARY)
    if not summary.exists():
        return
    written = read_object(summary, "the summary of a run").get(CHECKSUM)
    with legible(str(file)):
        if written is not None and written != checksum_of(file):
            raise InputError(f"{file} has been altered: its checksum is wrong.")


def parsed(file: Path, most: int) -> dict[str, np.ndarray]:
    """Load all columns except the texts, which are the same in every row."""
    import polars

    try:
        with silence():
            return _parsed(polars, file, most)
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in polars is not an Exception
        raise InputError(f"{file} is not a Parquet file, or is damaged: {' '.join(str(error).split())[:200]}") from None


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Redirect standard error at the OS level: a panic in polars writes its backtrace there, bypassing Python."""
    with _one_at_a_time, contextlib.ExitStack() as end:
        with contextlib.suppress(OSError, AttributeError):  # there is no standard error
            sys.stderr.flush()
            kept = os.dup(2)
            end.callback(os.close, kept)
            end.callback(os.dup2, kept, 2)
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
        yield


def _parsed(polars: Any, file: Path, most: int) -> dict[str, np.ndarray]:
    held = polars.read_parquet_schema(file)
    wrong = [name for name in NAMES if name not in held or not _has_type(name, held[name])]
    if wrong:
        raise InputError(f"{file} has {wrong[0]} = {held.get(wrong[0], 'nothing')}; expected the columns of a run.")
    added = [name for name, kind in held.items() if name not in NAMES and kind.is_numeric()]  # from a tracker, with any name
    if len(added) > MOST_ADDED:
        raise InputError(f"{file} has {len(added):,} columns in addition to those of a run; expected at most {MOST_ADDED}.")
    rows = polars.scan_parquet(file).select(polars.len()).collect().item()
    if rows > most:
        raise InputError(f"{file} claims {rows:,} rows; expected at most {most:,} for this run and a file of this size.")
    table = polars.read_parquet(file, columns=[name for name in (*NAMES, *added) if name not in TEXTS])
    if sum(table.null_count().row(0)):
        raise InputError(f"{file} has rows with missing values, which a run never writes.")
    return {column.name: column.to_numpy() for column in table}


def _has_type(name: str, kind: Any) -> bool:
    """Whether a polars type is the expected one for the column of this name."""
    import polars

    if name in TEXTS:
        return bool(kind == polars.String)
    if name in FLAGS:
        return bool(kind == polars.Boolean)
    return bool(kind.is_integer() if name in COUNTS else kind.is_float())


def checked(table: dict[str, np.ndarray], config: Mapping[str, Any], file: Path) -> dict[str, np.ndarray]:
    """Return the table with its columns in order, after checking that its rows are those of the config's runs, run by run."""
    seeds, settings, rows = np.asarray(config["seeds"]), len(config["settings"]), len(table["iteration"])
    starts = np.nonzero(table["iteration"] == 0)[0]
    if len(starts) != len(seeds) * settings or rows == 0 or starts[0] != 0:
        raise InputError(f"{file} has the rows of {len(starts)} runs; expected {len(seeds) * settings}.")
    lengths = np.diff(np.append(starts, rows))
    setting, seed = np.divmod(np.arange(len(starts)), len(seeds))
    expected = {
        "setting": np.repeat(setting, lengths),
        "seed": np.repeat(seeds[seed], lengths),
        "iteration": np.arange(rows) - np.repeat(starts, lengths),
    }
    for name, values in expected.items():
        if not np.array_equal(table[name], values):
            raise InputError(f"{file} does not have the {name} of its runs in the order of config.json.")
    for name in ("trajectories", "steps"):
        taken = np.diff(table[name].astype(np.int64), prepend=0)
        taken[starts] = table[name][starts]
        if (taken < 0).any() or (taken[starts] == 0).any():
            raise InputError(
                f"{file} has {name} that increase by {shown(int(taken.min()))} in an iteration; "
                "expected counts that start above 0 and never decrease."
            )
    texts = {name: np.broadcast_to(np.array(config[name]), rows) for name in TEXTS}
    return {**{name: texts[name] if name in TEXTS else table[name] for name in NAMES}, **table}
