"""Logs of a run for other programs: TensorBoard, Weights & Biases, MLflow, CSV, several at once.

A logger is given every iteration of every seed, with the trajectories sampled so far as its step.
"""

import contextlib
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stormpg.engine.iteration import Row, State
from stormpg.errors import InputError, choose

Values = Mapping[str, float]
QUANTITIES = ("mean_return", "discounted_return", "gradient_norm", "weight_max", "effective_sample_size")


class Logger(NamedTuple):
    """Where values go: write(name of the run, trajectories, values), and close()."""

    write: Callable[[str, int, Values], None]
    close: Callable[[], None]


def tensorboard(folder: Path) -> Logger:
    """Event files, one folder for each seed."""
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
    """One run of Weights & Biases; seeds are prefixes, and trajectories a metric of their own."""
    run = _import("wandb", "wandb").init(project="stormpg", dir=str(folder), name=folder.name)

    def write(name: str, step: int, values: Values) -> None:
        run.log({f"{name}/trajectories": step, **{f"{name}/{key}": value for key, value in values.items()}})

    return Logger(write, run.finish)


def mlflow(folder: Path) -> Logger:
    """A run of MLflow, in the tracking server that is set, or in a database below the run's folder."""
    client = _import("mlflow", "mlflow")
    if not client.is_tracking_uri_set():
        client.set_tracking_uri(f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    client.set_experiment("stormpg")
    client.start_run(run_name=folder.name)

    def write(name: str, step: int, values: Values) -> None:
        client.log_metrics({f"{name}/{key}": value for key, value in values.items()}, step=step)

    return Logger(write, client.end_run)


def comma_separated(folder: Path) -> Logger:
    """log.csv, one line for each iteration."""
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
    """The loggers of these names, closed at the end."""
    wanted = [choose("log", name, LOGGERS) for name in dict.fromkeys(names)]
    if wanted and folder is None:
        raise InputError("a log needs a folder to write to: give --out, or out= in Python.")
    with contextlib.ExitStack() as stack:
        opened = []
        for name in wanted:
            opened.append(open_log(name, folder))  # type: ignore[arg-type]
            stack.callback(opened[-1].close)
        yield opened


def open_log(name: str, folder: Path) -> Logger:
    """InputError where the other program refuses: not logged in, no server, no database."""
    try:
        return LOGGERS[name](folder)
    except InputError:
        raise
    except Exception as error:  # each program has errors of its own
        raise InputError(f"--log {name} could not be opened: {error}") from error


def send(loggers: Sequence[Logger], names: Sequence[str], states: State, rows: Row) -> None:
    """A chunk of a block to the loggers: `names` of its runs, where they stand after it, and its rows, [iterations, runs]."""
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
