"""A real Ray cluster: two nodes on loopback, each with its own raylet. One of them is killed."""

import os
import pathlib
import signal
import socket
import threading
import time
import uuid
import warnings

import numpy as np
import pytest

from stormpg.errors import InputError, PartsFailed
from stormpg.machine import blocks, retries
from stormpg.machine.ray_cluster import check_address, imported
from stormpg.report import write
from stormpg.studies.work_units import Unit
from stormpg.studies.workers import workers
from stormpg.studies.workspace import Part, Workspace
from stormpg.tune import halving, packed_trials, search
from stormpg.tune.objective import Objective
from stormpg.tune.plan import Problem, Search
from stormpg.tune.space import Range
from stormpg.tune.storage import open_study
from tests.sampling.test_ray_actors import small_clusters

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray emits many warnings

PROBLEM = Problem("chain", "storm-pg", 60, tuple(range(1000, 1008)), 5, Objective())
SPACE = {"eta": Range(0.001, 0.5, log=True), "alpha": Range(0.1, 1.0)}
SEARCH = Search(PROBLEM, SPACE, {"S0": 4, "B": 2}, {}, trials=20, generation=10)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def two_nodes():
    """The address of a cluster of two nodes, and the raylet process and the id of the second node."""
    imported()
    from ray.cluster_utils import Cluster

    port = free_port()
    with warnings.catch_warnings(action="ignore"), small_clusters():
        soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
        head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port, "_system_config": soon}
        made = Cluster(initialize_head=True, head_node_args=head)
        second = made.add_node(num_cpus=1)
    until = time.time() + 60
    while time.time() < until:
        try:
            check_address(f"ray://127.0.0.1:{port}")
            break
        except InputError:
            time.sleep(0.2)
    yield f"ray://127.0.0.1:{port}", second.all_processes["raylet"][0].process.pid, second.node_id
    made.shutdown()


def children(process):
    """The child processes of a process."""
    listed = [file.read_text() for file in pathlib.Path("/proc", str(process), "task").glob("*/children")]
    return [int(number) for number in " ".join(listed).split()]


def told(study):
    return [(t.number, t.state.name, t.params, t.values, t.intermediate_values) for t in study.get_trials(deepcopy=False)]


def study_in(folder):
    folder.mkdir(exist_ok=True)
    return open_study(f"sqlite:///{folder / 'study.db'}", "s", SEARCH.about(), "maximize")


def test_a_search_over_two_nodes_one_of_which_is_killed(tmp_path, two_nodes, monkeypatch):
    """SIGKILL in the middle of a pack on the second node: the study equals that of one process, trial by trial."""
    address, raylet, second = two_nodes
    here, there, seen = (tmp_path / name for name in ("here", "there", "seen"))
    monkeypatch.setattr(packed_trials, "RUNS", 16)  # two trials in a pack
    search.run(Workspace(here), SEARCH, study_in(here), alone=True)
    seen.mkdir()
    real = halving.run_pack

    def watched(*arguments):
        import ray

        mine = ray.get_runtime_context().get_node_id()
        begun = seen / f"{uuid.uuid4().hex}-{mine}"
        begun.write_text("begun")
        until = time.time() + 60
        while len(list(seen.glob(f"*-{second}"))) < 3 and mine != second and time.time() < until:
            time.sleep(0.02)  # the first node waits for the second, which is killed in the middle of its third pack
        found = real(*arguments)
        while len(list(seen.glob(f"*-{second}"))) > 2 and mine == second and time.time() < until:
            time.sleep(0.02)
        begun.write_text("done")
        return found

    monkeypatch.setattr(halving, "run_pack", watched)
    nodes = lambda: [file.name.rpartition("-")[2] for file in seen.iterdir()]
    killed, over = threading.Event(), threading.Event()

    def kill():
        while not (killed.is_set() or over.is_set()):
            of_second = [f for f in seen.iterdir() if f.name.endswith(second)]
            if len(of_second) > 2 and any(f.read_text() == "begun" for f in of_second):
                for process in (raylet, *children(raylet)):
                    os.kill(process, signal.SIGKILL)
                killed.set()
            time.sleep(0.005)

    watcher = threading.Thread(target=kill)
    with workers(address) as those:
        watcher.start()
        search.run(Workspace(there, workers=those), SEARCH, study_in(there), alone=True)
    over.set()
    watcher.join()
    assert killed.is_set()
    assert len(set(nodes())) == 2
    # The second node was killed in the middle of a pack.
    assert any(file.read_text() == "begun" for file in seen.iterdir() if file.name.endswith(second))
    found = told(study_in(there))
    assert len(found) == 20
    assert found == told(study_in(here))


def test_units_and_the_command_on_a_cluster_are_those_of_threads_and_failures_are_named(tmp_path, command, monkeypatch):
    """A local cluster opens ports on loopback only. A failing part does not stop the others."""
    compare = ["compare", "chain", "--algorithms", "gpomdp,storm-pg", "--trajectories", "30", "--seeds", "2", "--horizon", "5"]
    monkeypatch.setattr(write, "learning_curves", lambda *arguments: None)  # figures are not compared
    monkeypatch.setattr(blocks, "_lent", 1)  # one process at a time: each takes seconds to start
    units = [Unit(f"runs/{name}", "chain", name, ({"S0": 4},), 20, 3, horizon=5) for name in ("gpomdp", "reinforce")]
    by_threads = Workspace(tmp_path / "threads").run(units)
    before = listening()
    with workers("ray") as those:
        opened = listening() - before
        by_ray = Workspace(tmp_path / "ray", workers=those).run(units)
        kept = []
        parts = {"good": Part(lambda: 3, kept.append), "bad": Part(lambda: 1 / 0, kept.append, "eta = 7")}
        with pytest.raises(PartsFailed, match=r"bad eta = 7 .*ZeroDivisionError"):
            Workspace(tmp_path / "parts", workers=those).do(parts, 2)
        monkeypatch.setattr(retries, "CRASHES", 1)
        monkeypatch.setattr(retries, "PARTS", 1)
        died = {"dies": Part(lambda: os.kill(os.getpid(), signal.SIGKILL), kept.append)}
        with pytest.raises(PartsFailed, match="dies"):
            Workspace(tmp_path / "parts", workers=those).do(died, 1)
        for name, more in (("here", ()), ("there", ("--workers", "ray"))):
            assert command(*compare, *more, "--out", name)[::2] == (0, "")
    assert kept == [3]
    for one, other in zip(by_threads, by_ray, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert opened
    assert all(address.startswith("127.0.0.1:") for address in opened)
    assert (tmp_path / "here" / "claims.json").read_text() == (tmp_path / "there" / "claims.json").read_text()
    cut = lambda name: (tmp_path / name / "tables.md").read_text().split("## How")[0]
    assert cut("here") == cut("there")


def listening():
    """The addresses on which processes of this machine listen."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A":
                address, port = local.split(":")
                loopback = address in ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
                found.add(f"{'127.0.0.1' if loopback else address}:{int(port, 16)}")
    return found


@pytest.mark.parametrize("address", ["ray://127.0.0.1:1", "ray://", "ray://host:none", "http://127.0.0.1:1"])
def test_addresses_at_which_nothing_answers(address):
    with pytest.raises(InputError, match=r"no Ray cluster answers|expected ray"):
        check_address(address)
