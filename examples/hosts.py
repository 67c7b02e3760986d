"""One program for each of several hosts: every one trains its share of the seeds; the first prints what came of all.

Give this to host K of N, with a folder that all of them see, and an address of the first that the others reach:

    python hosts.py --coordinator 10.0.0.1:9310 --processes N --process K --out runs

The coordinator listens at that address alone, 127.0.0.1 unless another is given: whoever reaches it can join.
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
parser.add_argument("--process", type=int, default=0, help="the number of this one, from 0 on")
parser.add_argument("--seeds", type=int, default=8)
parser.add_argument("--trajectories", type=int, default=300)
parser.add_argument("--horizon", type=int, default=100)
parser.add_argument("--out", type=Path, help="a folder for the runs; a temporary one for a process that is alone")
given = parser.parse_args()

if given.processes > 1:
    if given.out is None:
        parser.error("several processes need a folder that they share: give --out.")
    # Before anything is computed. If a process dies, or ends with an error, the others are ended too, after some minutes.
    bound = {"coordinator_bind_address": given.coordinator}  # by default it would be every address of the machine
    jax.distributed.initialize(given.coordinator, given.processes, given.process, **bound)

root = given.out or Path(tempfile.mkdtemp())
folders = [root / f"host-{number}" for number in range(jax.process_count())]
mine = list(range(given.seeds))[jax.process_index() :: jax.process_count()]
algorithm = stormpg.storm_pg(eta=0.01, alpha=0.9, S0=10, B=5)
out = folders[jax.process_index()]
stormpg.train("cartpole-continuous", algorithm, given.trajectories, mine, horizon=given.horizon, out=out)

# All of them wait here, so that they leave together. JAX's own barriers are for seconds, not for hosts that differ in speed.
while not all(run_folder.is_whole(folder) for folder in folders):
    time.sleep(0.2)
if jax.process_index() == 0:
    for folder in folders:
        finals = mean_return(run_folder.read_metrics(folder), window=50)
        for seed, final in zip(run_folder.read_config(folder)["seeds"], finals, strict=True):
            print(f"{folder.name}, seed {seed}: return over the last 50 trajectories {final:.1f}")
    print(f"the runs are in {root}")
