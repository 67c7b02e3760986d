"""Train on several hosts: each process trains its share of the seeds, and the first one prints the results of all.

Run this on host K of N (K = 0 ... N - 1), with a folder that all hosts share and an address at which they reach host 0:

    python hosts.py --coordinator 10.0.0.1:9310 --processes N --process K --out runs

The coordinator listens only at that address (default: 127.0.0.1). Any process that can reach it can join.
"""

import argparse
import tempfile
import time
from pathlib import Path

import jax

import stormpg
from stormpg.runs import run_folder
from stormpg.runs.table import mean_return

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
parser.add_argument("--coordinator", default="127.0.0.1:9310", help="address and port of the first process")
parser.add_argument("--processes", type=int, default=1)
parser.add_argument("--process", type=int, default=0, help="the number of this process, from 0")
parser.add_argument("--seeds", type=int, default=8)
parser.add_argument("--trajectories", type=int, default=300)
parser.add_argument("--horizon", type=int, default=100)
parser.add_argument("--out", type=Path, help="folder for the runs (default for a single process: a temporary folder)")
given = parser.parse_args()

if given.processes > 1:
    if given.out is None:
        parser.error("several processes need a shared folder: give --out.")
    # Call this before any computation. If a process dies or ends with an error, the others end too, after some minutes.
    bound = {"coordinator_bind_address": given.coordinator}  # the default is every address of the machine
    jax.distributed.initialize(given.coordinator, given.processes, given.process, **bound)

root = given.out or Path(tempfile.mkdtemp())
folders = [root / f"host-{number}" for number in range(jax.process_count())]
mine = list(range(given.seeds))[jax.process_index() :: jax.process_count()]
algorithm = stormpg.storm_pg(eta=0.01, alpha=0.9, S0=10, B=5)
out = folders[jax.process_index()]
stormpg.train("cartpole-continuous", algorithm, given.trajectories, mine, horizon=given.horizon, out=out)

# All processes wait here, so that they end together. JAX's barriers time out too early for hosts that differ in speed.
while not all(run_folder.is_whole(folder) for folder in folders):
    time.sleep(0.2)
if jax.process_index() == 0:
    for folder in folders:
        finals = mean_return(run_folder.read_metrics(folder), window=50)
        for seed, final in zip(run_folder.read_config(folder)["seeds"], finals, strict=True):
            print(f"{folder.name}, seed {seed}: return over the last 50 trajectories {final:.1f}")
    print(f"the runs are in {root}")
