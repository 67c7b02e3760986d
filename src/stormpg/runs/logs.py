"""Loggers for other programs: TensorBoard, Weights & Biases, MLflow and CSV. Several can be used at once.

A logger receives every iteration of every seed. Its step is the number of trajectories sampled so far.
"""

import contextlib
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stormpg.engine.iteration import State
from stormpg.engine.metrics import Row
from stormpg.errors import InputError, choose

Values = Mapping[str, float]
QUANTITIES = ("mean_return", "discounted_return", "gradient_norm", "weight_max", "effective_sample_size")


class Logger(NamedTuple):
    """A destination for values: write(name of the run, trajectories, values) and close()."""

    write: Callable[[str, int, Values], None]
    close: Callable[[], None]


def tensorboard(folder: Path) -> Logger:
    """TensorBoard event files, one folder for each seed."""
    writer_class = _import("tensorboardX", "tensorboard").SummaryWriter
    writers: dict[str, Any] = {}

    def write(run: str, step: int, values: Values) -> None:
        if run not in writers:
            writers[run] = writer_class(str(folder / "tensorboard" / run))
        for name, value in values.items():
            writers[run].add_scalar(name, value, step)

    def close() -> None:
        for writer in writers.values():
            writer.close()

    return Logger(write, close)


def wandb(folder: Path) -> Logger:
    """One run of Weights & Biases. Names are prefixed with the seed, and trajectories are a separate metric."""
    run = _import("wandb", "wandb").init(project="stormpg", dir=str(folder), name=folder.name)

    def write(name: str, step: int, values: Values) -> None:
        run.log({f"{name}/trajectories": step, **{f"{name}/{key}": value for key, value in values.items()}})

    return Logger(write, run.finish)


def mlflow(folder: Path) -> Logger:
    """A run of MLflow, on the configured tracking server, or in a database in the run's folder if none is configured."""
    client = _import("mlflow", "mlflow")
    if not client.is_tracking_uri_set():
        client.set_tracking_uri(f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    client.set_experiment("stormpg")
    client.start_run(run_name=folder.name)

    def write(name: str, step: int, values: Values) -> None:
        client.log_metrics({f"{name}/{key}": value for key, value in values.items()}, step=step)

    return Logger(write, client.end_run)


def comma_separated(folder: Path) -> Logger:
    """The file log.csv, one line for each iteration."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "log.csv").open("a", newline="", encoding="utf-8")
    writer = csv.writer(file)
    if file.tell() == 0:
        writer.writerow(("run", "trajectories", *QUANTITIES))
    return Logger(lambda run, step, values: writer.writerow((run, step, *values.values())), file.close)


LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "csv": comma_separated,
}


@contextlib.contextmanager
def open_logs(names: Sequence[str], folder: Path | None) -> Iterator[list[Logger]]:
    """Open the loggers with these names, and close them at the end."""
    wanted = [choose("log", name, LOGGERS) for name in dict.fromkeys(names)]
    if folder is None:
        if wanted:
            raise InputError("a log needs a folder to write to: give --out, or out= in Python.")
        yield []
        return
    with contextlib.ExitStack() as stack:
        opened: list[Logger] = []
        for name in wanted:
            opened.append(open_log(name, folder))
            stack.callback(opened[-1].close)
        yield opened


def open_log(name: str, folder: Path) -> Logger:
    """Open a logger. Raises InputError if the other program fails: not logged in, no server, no database."""
    try:
        return LOGGERS[name](folder)
    except InputError:
        raise
    except Exception as error:  # each program raises its own errors
        raise InputError(f"--log {name} could not be opened: {error}") from error


def send(loggers: Sequence[Logger], names: Sequence[str], states: State, rows: Row) -> None:
    """Send a chunk of a block to the loggers: the names of its runs, their states after it, and its rows [iterations, runs]."""
    for column, name in enumerate(names):
        live = rows.live[:, column]
        sampled = np.asarray(rows.batch[:, column] * live)
        after = int(states.trajectories[column]) - sampled.sum() + np.cumsum(sampled)
        for i in np.nonzero(live)[0]:
            values = {quantity: float(getattr(rows, quantity)[i, column]) for quantity in QUANTITIES}
            for logger in loggers:
                logger.write(name, int(after[i]), values)


def _import(module: str, extra: str) -> Any:
    try:
        return __import__(module)
    except ImportError:
        raise InputError(f"--log {extra} needs the package {module}: pip install 'stormpg[{extra}]'.") from None
