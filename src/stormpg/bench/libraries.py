"""Comparison with other libraries. Each is a script with its own virtual environment (`make peers`), run in turn with ours."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stormpg.bench.measure import BenchTable, Row, Tell, as_users_have_it, in_turns, ratio
from stormpg.bench.speeds import Speed

SCRIPTS = Path(__file__).with_name("peers")
# The name, the folder of the virtual environment, the script and its arguments.
PEERS = (
    ("Stable-Baselines3 A2C", ".peers", "sb3.py", ("A2C",)),
    ("Stable-Baselines3 PPO", ".peers", "sb3.py", ("PPO",)),
    ("GPOMDP by hand in PyTorch", ".peers", "torch_gpomdp.py", ()),
    ("rejax PPO", ".peers-jax", "rejax_ppo.py", ()),
    ("PureJaxRL-style PPO", ".peers-jax", "ppo_jax.py", ()),
)
ONE, MANY = "stormpg GPOMDP, one seed", "stormpg GPOMDP, 64 seeds"
OURS = {ONE: 1, MANY: 64}  # and the number of seeds


class Peer:
    """Measures a peer, in thousand steps per second."""

    def __init__(self, python: Path, script: str, arguments: tuple[str, ...], seconds: float) -> None:
        self.command = [str(python), str(SCRIPTS / script), *arguments, str(seconds)]
        self.found: dict[str, Any] = {}

    def __call__(self) -> float:
        done = subprocess.run(self.command, env=as_users_have_it(), capture_output=True, text=True, check=True)
        self.found = json.loads(done.stdout.splitlines()[-1])
        return float(self.found["steps_per_second"]) / 1e3


class Ours(Speed):
    """Measures this library in thousand steps per second, counting only steps inside episodes, as the peers do."""

    def __call__(self) -> float:
        return super().__call__() * 1e3 * self.live


def peers(folder: Path, quick: bool, rounds: int, tell: Tell) -> BenchTable:
    """The library and each peer with batches of 10 × 100 steps. The row of a peer that cannot run says why."""
    tasks: dict[str, Callable[[], float]] = {
        name: Ours("cartpole-continuous", "gpomdp", 10, seeds, 100) for name, seeds in OURS.items()
    }
    missing = []
    for name, environment, script, arguments in PEERS:
        if quick and "PPO" in arguments:  # by far the slowest
            continue
        python = folder / environment / "bin" / "python"
        peer = Peer(python, script, arguments, 1.0 if quick else 4.0)
        if not python.exists():
            missing.append(Row(name, [], {"missing": f"there is no {environment} here; `make peers` installs it"}))
            continue
        try:
            tell(f"{name}, trial call")
            peer()
        except subprocess.CalledProcessError as error:
            missing.append(Row(name, [], {"missing": (error.stderr.strip().splitlines() or ["the script failed"])[-1]}))
            continue
        tasks[name] = peer
    figures = in_turns(tasks, rounds, tell, warm=[name for name, *_ in PEERS])  # a script warms up by itself
    rows = [Row(name, figures[name], _about(task)) for name, task in tasks.items()]
    columns = {"ours, one seed": figures[ONE], "ours, 64 seeds": figures[MANY]}
    rows = [
        row._replace(about={**row.about, **{column: ratio(ours, row.values) for column, ours in columns.items()}})
        for row in rows
    ]
    note = "Steps inside episodes; batches of 10 × 100 steps, one hidden layer of 64. Ours: how many times as fast we are."
    return BenchTable("peers", "Compared with other libraries, Cart-Pole", "thousand steps a second", [*rows, *missing], note)


def _about(task: Callable[[], float]) -> dict[str, Any]:
    """The version and the setting of a task."""
    if isinstance(task, Peer):
        return {key: task.found[key] for key in ("version", "setting")}
    return {"setting": "Gaussian policy 4-64-1, batches of 10 episodes of at most 100 steps"}
