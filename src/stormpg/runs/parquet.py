"""metrics.parquet: the table of a run's iterations as a file. Its checksum is kept in summary.json.

Before a table is read its checksum is compared, and its columns, types and number of rows are taken from the file's metadata:
a file of some kilobytes can claim any number of rows.
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
FREE_ROWS = 10**6  # any table may have that many rows, and a larger one as many as its file has bytes: no real one is as dense
MOST_ADDED = 100  # columns besides the usual ones
TEXTS = ("env", "algorithm")
FLAGS = ("large", "diverged")
COUNTS = ("setting", "seed", "iteration", "trajectories", "steps")

_one_at_a_time = threading.Lock()  # of those who redirect the standard error


def write_metrics(columns: Columns, file: Path) -> str:
    """Write a table; its checksum."""
    import polars

    write_file(file, lambda part: polars.DataFrame(dict(columns)).write_parquet(part))
    return checksum_of(file)


def checksum_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_metrics(folder: Path, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns of a run's metrics.parquet, if they are those of the run that its config describes."""
    file = folder / FILE
    size = size_of(file, "the table of a finished run")
    most = most_rows(config, size)
    if size > 2**20 + 200 * most:
        raise InputError(f"{file} has {size:,} bytes, more than the {most:,} rows that config.json allows can take.")
    check_checksum(file)
    return checked(parsed(file, most), config, file)


def most_rows(config: Mapping[str, Any], size: int) -> int:
    """The rows that a table of a run may have, by its budget and by the size of its file."""
    inner = max((m for s in config["settings"] if isinstance(m := s.get("m"), int)), default=0)
    each = (config["trajectories"] + 1) * (1 + max(inner, 0))  # an inner step may take no trajectory of its own
    return min(len(config["seeds"]) * len(config["settings"]) * each, FREE_ROWS + size)


def check_checksum(file: Path) -> None:
    """InputError where the file is not the one that was written. Runs of earlier versions have no checksum."""
    summary = file.with_name(SUMMARY)
    if not summary.exists():
        return
    written = read_object(summary, "the summary of a run").get(CHECKSUM)
    with legible(str(file)):
        if written is not None and written != checksum_of(file):
            raise InputError(f"{file} has been altered: its checksum is wrong.")


def parsed(file: Path, most: int) -> dict[str, np.ndarray]:
    """All columns but the texts, which would be the same in every row."""
    import polars

    try:
        with silence():
            return _parsed(polars, file, most)
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in polars is no Exception
        raise InputError(f"{file} is not a Parquet file, or is damaged: {' '.join(str(error).split())[:200]}") from None


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Nothing reaches the standard error of this process: a panic in polars writes its backtrace there, past Python."""
    with _one_at_a_time, contextlib.ExitStack() as end:
        with contextlib.suppress(OSError, AttributeError):  # no standard error at all
            sys.stderr.flush()
            kept = os.dup(2)
            end.callback(os.close, kept)
            end.callback(os.dup2, kept, 2)
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
        yield


def _parsed(polars: Any, file: Path, most: int) -> dict[str, np.ndarray]:
    held = polars.read_parquet_schema(file)
    wrong = [name for name in NAMES if name not in held or not _is(name, held[name])]
    if wrong:
        raise InputError(f"{file} has {wrong[0]} = {held.get(wrong[0], 'nothing')}; expected the columns of a run.")
    added = [name for name, kind in held.items() if name not in NAMES and kind.is_numeric()]  # by a tracker, of any name
    if len(added) > MOST_ADDED:
        raise InputError(f"{file} has {len(added):,} columns besides those of a run; expected at most {MOST_ADDED}.")
    rows = polars.scan_parquet(file).select(polars.len()).collect().item()
    if rows > most:
        raise InputError(f"{file} claims {rows:,} rows; expected at most {most:,} for this run and a file of this size.")
    table = polars.read_parquet(file, columns=[name for name in (*NAMES, *added) if name not in TEXTS])
    if sum(table.null_count().row(0)):
        raise InputError(f"{file} has rows with missing values, which no run writes.")
    return {column.name: column.to_numpy() for column in table}


def _is(name: str, kind: Any) -> bool:
    import polars

    if name in TEXTS:
        return kind == polars.String
    if name in FLAGS:
        return kind == polars.Boolean
    return kind.is_integer() if name in COUNTS else kind.is_float()


def checked(table: dict[str, np.ndarray], config: Mapping[str, Any], file: Path) -> dict[str, np.ndarray]:
    """The table in the order of its columns, if its rows are those of the config's runs, run after run."""
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
            raise InputError(f"{file} does not have the {name} of its runs in order, as config.json has them.")
    for name in ("trajectories", "steps"):
        taken = np.diff(table[name].astype(np.int64), prepend=0)
        taken[starts] = table[name][starts]
        if (taken < 0).any() or (taken[starts] == 0).any():
            raise InputError(f"{file} counts {name} backwards: {shown(int(taken.min()))}.")
    texts = {name: np.broadcast_to(np.array(config[name]), rows) for name in TEXTS}
    return {**{name: texts[name] if name in TEXTS else table[name] for name in NAMES}, **table}
