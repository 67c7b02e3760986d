"""How time and memory grow with the seeds, batch, horizon, width and settings, varying one of them at a time."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import stormpg
from stormpg.bench.measure import BenchTable, Row, Tell, alone, exponent, in_turns, python, seconds_of
from stormpg.runs.result import Result

ENV = "pendulum"  # its episodes never end early, so every slot is a step
USUAL: Mapping[str, int] = {"seeds": 16, "B": 5, "horizon": 100, "hidden": 64, "settings": 1}
AXES: Mapping[str, Sequence[int]] = {
    "seeds": (1, 4, 16, 64, 256, 1024),
    "B": (5, 20, 80, 320, 1280),
    "horizon": (50, 100, 200, 400, 800, 1600),
    "hidden": (16, 32, 64, 128, 256, 512),
    "settings": (1, 4, 16, 64),
}
ITERATIONS = 20
NOISE = 20.0  # megabytes by which two processes of the same case may differ


def run(seeds: int, B: int, horizon: int, hidden: int, settings: int) -> Result:
    """Train one case for `ITERATIONS` iterations."""
    env = stormpg.make(ENV)
    policy = stormpg.policy_for(env, hidden=(hidden,))
    algorithms = [stormpg.storm_pg(S0=B, B=B, eta=0.001 * (1 + i)) for i in range(settings)]
    return stormpg.train(env, algorithms, ITERATIONS * B, seeds, horizon=horizon, policy=policy)


def points(axis: str, quick: bool) -> list[dict[str, int]]:
    """The cases of one axis: the usual case with other values of that axis."""
    values = AXES[axis][:: 2 if quick else 1]
    return [{**USUAL, axis: value} for value in values]


def growth(quick: bool, rounds: int, tell: Tell) -> BenchTable:
    """The seconds of 20 iterations. The exponent is fitted to the upper half of an axis, where overheads no longer matter."""
    rows = []
    for axis in AXES:
        work: dict[str, Callable[[], float]] = {
            f"{axis} = {point[axis]}": partial(seconds_of, partial(run, **point)) for point in points(axis, quick)
        }
        figures = in_turns(work, rounds, tell)
        found = [
            Row(name, seconds, {"axis": axis, "value": point[axis]})
            for (name, seconds), point in zip(figures.items(), points(axis, quick), strict=True)
        ]
        rows += [row._replace(about={**row.about, "exponent": fitted(found)}) for row in found]
    usual = ", ".join(f"{name} {value}" for name, value in USUAL.items())
    note = (
        f"STORM-PG on {ENV}, 20 iterations; the other axes stay at {usual}. Exponent of time over the upper half of each axis."
    )
    return BenchTable("growth", "Growth of time", "seconds", rows, note, "lower")


def fitted(rows: Sequence[Row]) -> float:
    """The exponent over the upper half of an axis."""
    last = rows[-max(2, (len(rows) + 1) // 2) :]
    return exponent([row.about["value"] for row in last], [row.median for row in last])


def memory(quick: bool, tell: Tell) -> BenchTable:
    """The peak memory of whole processes."""
    rows = []
    for axis, values in {"seeds": (16, 256, 1024), "B": (5, 80, 640), "horizon": (100, 800, 3200)}.items():
        found = []
        for value in values[:: 2 if quick else 1]:
            tell(f"memory with {axis} = {value}")
            point = {**USUAL, axis: value}
            process = alone(python(f"from stormpg.bench.growth import run; run(**{point})"))
            found.append(Row(f"{axis} = {value}", [process.megabytes], {"axis": axis, "value": value}))
        above_smallest = [row.median - found[0].median for row in found[1:]]
        if len(above_smallest) > 1 and min(above_smallest) > NOISE:
            power = exponent([row.about["value"] for row in found[1:]], above_smallest)
            found = [row._replace(about={**row.about, "exponent": power}) for row in found]
        rows += found
    note = f"STORM-PG on {ENV}, peak memory of a whole process. Exponent of the memory above the smallest case, if it grows."
    return BenchTable("memory", "Growth of memory", "megabytes", rows, note, "lower")
