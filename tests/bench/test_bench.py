"""`stormpg bench`: how it measures, and what it writes and compares. Speeds themselves are not tested."""

import ast
import importlib.util
import json
import math
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

import stormpg
from stormpg.bench import growth, libraries, limit, measure, outside, run, speeds, tables, waits
from stormpg.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
SILENT = lambda what: None


def result(**speed: float) -> dict:
    """A result with one table, with rows of these medians."""
    rows = [{"name": name, "median": m, "values": [m * 0.99, m, m * 1.01]} for name, m in speed.items()]
    table = {"name": "training", "title": "Training", "unit": "steps", "rows": rows, "note": "", "faster_is": "higher"}
    machine = {"cpu": "A CPU", "cores": 2, "system": "Linux", "accelerators": []}
    return {"date": "2026-01-02T03:04:05", "machine": machine, "versions": {"jax": "0.1"}, "tables": [table]}


def test_tasks_take_turns_after_one_call_each():
    calls = []
    task = lambda name: lambda: calls.append(name) or float(len(calls))
    found = measure.in_turns({"a": task("a"), "b": task("b")}, 2, SILENT)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert found == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_an_exponent():
    assert measure.exponent([1, 2, 4, 8], [3 * x**1.5 for x in (1, 2, 4, 8)]) == pytest.approx(1.5)


def test_a_process_is_measured_whole():
    process = measure.alone(measure.python("x = bytearray(200_000_000); print('first'); print('last')"))
    assert process.last_line == "last"
    assert 190 < process.megabytes < 400
    assert process.seconds > 0


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (12.34, "12.3"), (0.01234, "0.0123"), (0.0, "0.0"), (9.996, "10.00")]
)
def test_numbers_have_three_digits(value, text):
    assert tables.number(value) == text


def test_what_got_slower_is_named():
    old = result(same=10.0, slower=10.0, faster=10.0, gone=1.0)
    new = result(same=9.9, slower=5.0, faster=20.0, new=1.0)
    assert dict(tables.slower(new, old)) == {"Training: slower": 0.5}
    assert tables.compared(new, old) == 3
    for one in (old, new):
        one["tables"][0]["faster_is"] = "lower"
    assert dict(tables.slower(new, old)) == {"Training: faster": 0.5}
    noisy = result(slower=8.0)
    noisy["tables"][0]["rows"][0]["values"] = [5.0, 8.0, 11.0]
    assert not dict(tables.slower(noisy, old))  # its spread overlaps with the other's


def test_stored_shown_again_and_compared(command, tmp_path):
    old = tables.store(result(fast=10.0, slow=9.0), tmp_path)
    assert old.name == "2026-01-02T0304-a-cpu-2.json"
    assert (tmp_path / "2026-01-02T0304-a-cpu-2" / "training.png").stat().st_size > 5000
    new = tmp_path / "new.json"
    new.write_text(json.dumps(result(fast=10.0, slow=3.0)))
    code, out, _ = command("bench", "--load", str(new), "--against", str(old), "--json")
    assert code == 0
    assert "1 got slower, of 2 rows" in out
    assert json.loads(out.splitlines()[-1])["slower"] == {"Training: slow": pytest.approx(1 / 3, rel=1e-3)}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--tables", "trainings"), "did you mean 'training'?"),
        (("--against", "nowhere.json"), "there is no file nowhere.json; expected a result of `stormpg bench`"),
        (("--load", "README.md"), "README.md is not JSON"),
    ],
)
def test_mistakes_are_one_line(command, tmp_path, flags, message):
    (tmp_path / "README.md").write_text("nothing")
    code, _, err = command("bench", *flags)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "benchmarks").exists()


def test_a_readme_without_a_place_for_the_table(tmp_path):
    file = tmp_path / "README.md"
    file.write_text("no marks")
    with pytest.raises(InputError, match="no place"):
        tables.write_readme(result(a=1.0), file)
    file.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    tables.write_readme(result(a=1.0), file)
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{tables.END}\nafter\n")
    assert "A CPU, 2 cores, jax 0.1, 2026-01-02" in text
    assert "old" not in text


def test_the_page_on_speed_shows_the_last_stored_result():
    stored = [tables.read(file) for file in sorted((ROOT / "benchmarks" / "results").glob("*-2.json"))]
    with_all = [one for one in stored if {"limit", "peers", "waits"} <= {table["name"] for table in one["tables"]}]
    text = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    shown = text.split(tables.BEGIN)[1].split(tables.END)[0].strip()
    assert shown == tables.markdown(with_all[-1]).strip()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")
def test_the_c_program_computes_the_librarys_gradients(tmp_path):
    program = limit.build(tmp_path)
    assert limit.compare(program, tmp_path) < 2e-5
    assert limit.in_c(program, "storm-pg", 5, 1, seconds=0.05) > 0
    assert limit.peak(program) > 0.1


def test_without_a_compiler_or_peers_the_rows_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    table = limit.limit(tmp_path, 1, SILENT)
    assert "gcc" in table.rows[0].about["missing"]
    monkeypatch.setattr(libraries, "Ours", lambda *case: type("Fast", (), {"__call__": lambda self: 5.0})())
    table = libraries.peers(tmp_path, False, 1, SILENT)
    assert [row.name for row in table.rows if not row.values] == [name for name, *_ in libraries.PEERS]
    assert all("make peers" in row.about["missing"] for row in table.rows if not row.values)
    assert math.isnan(table.rows[-1].median)
    assert "make peers" in str(tables.cells(table.as_json()))


def test_a_peer_is_a_script_that_prints_json(monkeypatch, tmp_path):
    (tmp_path / "peer.py").write_text('print(\'noise\'); print(\'{"steps_per_second": 5000.0, "version": "1"}\')')
    monkeypatch.setattr(libraries, "SCRIPTS", tmp_path)
    assert libraries.Peer(Path(sys.executable), "peer.py", (), 1.0)() == 5.0
    for _, _, script, _ in libraries.PEERS:
        assert (Path(libraries.__file__).with_name("peers") / script).is_file()


@pytest.mark.slow
def test_a_speed_counts_slots_and_knows_how_many_are_live(monkeypatch):
    monkeypatch.setattr(speeds, "LONG_ENOUGH", 0.001)
    speed = speeds.Speed("cartpole-continuous", "svrpg", 2, 1, 7)
    assert speed() > 0
    assert 0.9 < speed.live <= 1.0  # no pole falls within seven steps
    assert speed.sampled == 20


@pytest.mark.slow
def test_without_early_exit_the_numbers_are_the_same():
    import numpy as np

    import stormpg

    train = lambda: stormpg.train("mountain-car-continuous", stormpg.storm_pg(S0=4, B=2), 8, 1, horizon=120)
    with speeds.fused("0"):
        usual = train()
    with speeds.fused("0"), speeds.to_the_end():
        np.testing.assert_allclose(train().columns["gradient_norm"], usual.columns["gradient_norm"], rtol=1e-4)
    with speeds.fused("0"):
        np.testing.assert_array_equal(train().columns["gradient_norm"], usual.columns["gradient_norm"])


@pytest.mark.slow
def test_all_tables_in_small(monkeypatch, tmp_path):
    """Real runs and real processes, except for the memory table: its eighteen processes would take minutes."""
    monkeypatch.setattr(speeds, "LONG_ENOUGH", 0.001)
    monkeypatch.setattr(speeds, "cases", lambda quick: [("cartpole-continuous", "storm-pg", 5, 2)])
    monkeypatch.setattr(growth, "AXES", {"seeds": (1, 2, 3)})
    monkeypatch.setattr(growth, "ITERATIONS", 2)
    monkeypatch.setattr(waits, "COMMANDS", {"version": [sys.executable, "--version"]})
    monkeypatch.setattr(waits, "CALL", "print(1.5)")
    *_, found = run.bench(("training", "waits", "growth"), True, SILENT, tmp_path)
    stored = tables.store(found, tmp_path)
    assert {file.stem for file in stored.with_suffix("").glob("*.png")} == {"training", "waits", "growth"}
    rows = {table["name"]: {row["name"]: row for row in table["rows"]} for table in tables.read(stored)["tables"]}
    assert list(rows) == ["training", "waits", "growth"]
    (speed,) = rows["training"].values()
    assert speed["median"] > 0
    assert len(speed["values"]) == 2
    assert [rows["waits"][f"first call of train(), one seed, {how}"]["median"] for how in ("cold", "warm")] == [1.5, 1.5]
    assert rows["waits"]["import stormpg"]["median"] > 0.1  # JAX alone takes longer
    assert {"version, cold", "version, warm"} < set(rows["waits"])
    one, three = rows["growth"]["seeds = 1"], rows["growth"]["seeds = 3"]
    expected = math.log(three["median"] / one["median"]) / math.log(3)
    assert one["exponent"] == three["exponent"] == pytest.approx(expected, abs=1e-3)


def test_memory_is_that_of_each_case(monkeypatch):
    """One axis varies at a time. The exponent is that of the memory above the smallest case."""
    points = []

    def process(command):
        points.append(ast.literal_eval(command[-1].split("run(**")[1][:-1]))
        more = sum(v / u for v, u in zip(points[-1].values(), growth.USUAL.values(), strict=True)) - len(growth.USUAL)
        return measure.Process(1.0, 100.0 + more**2, "")

    monkeypatch.setattr(growth, "alone", process)
    table = growth.memory(False, SILENT)
    assert len(points) == 9
    assert all(sum(point[name] != value for name, value in growth.USUAL.items()) <= 1 for point in points)
    horizon = [row for row in table.rows if row.about["axis"] == "horizon"]
    assert [row.median for row in horizon] == [100.0, 100.0 + 7**2, 100.0 + 31**2]
    assert horizon[0].about["exponent"] == pytest.approx(math.log(31**2 / 7**2) / math.log(4))


@pytest.mark.slow
def test_environments_outside_jax_in_small(monkeypatch, tmp_path):
    """Real environments; the peer is a script that prints a number. Without it the row says what is missing."""
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    monkeypatch.setattr(outside, "STEPS", {"gym:CartPole-v1": 2000, "gym:NoSuchTask-v1": 2000})
    table = outside.outside(tmp_path, True, 2, SILENT)
    alone, ours, theirs, unknown = table.rows
    assert [row.name for row in table.rows[:3]] == [
        f"gym:CartPole-v1, {what}" for what in (outside.ALONE, outside.OURS, outside.PPO)
    ]
    assert len(alone.values) == len(ours.values) == 2
    assert min(*alone.values, *ours.values) > 0
    assert ours.about["share of the environments"] > 0
    assert "make peers" in theirs.about["missing"]
    assert "NoSuchTask" in unknown.about["missing"]
    (tmp_path / ".peers" / "bin").mkdir(parents=True)
    (tmp_path / ".peers" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "sb3_outside.py").write_text("print('{\"steps_per_second\": 1000.0}')")
    assert (libraries.SCRIPTS / "sb3_outside.py").is_file()
    monkeypatch.setattr(libraries, "SCRIPTS", tmp_path)
    *_, found = run.bench(("outside",), True, SILENT, tmp_path)
    (stored,) = tables.read(tables.store(found, tmp_path))["tables"]
    assert stored["rows"][2]["median"] == 1.0
    assert stored["rows"][2]["ours, times PPO"] > 0


def test_an_envpool_is_stepped_alone():
    if importlib.util.find_spec("envpool") is None:
        pytest.skip("envpool is not installed: pip install 'stormpg[envpool]'")
    assert outside.envpool_alone("CartPole-v1", 1000) > 0


def test_no_task_compiles_again_in_later_rounds(monkeypatch):
    """Regression test: tables of more shapes than a process keeps measured compilation."""
    from stormpg.engine.compiled_loop import chunk
    from stormpg.machine import xla

    monkeypatch.setattr(xla, "KEPT", 1)
    compiled = []

    def train(B):
        stormpg.train("chain", stormpg.storm_pg(S0=B, B=B), 4 * B, 1)
        compiled.append(chunk.compiled)
        return 1.0

    measure.in_turns({str(B): partial(train, B) for B in (2, 3, 4)}, 2, SILENT)
    assert compiled[-1] == compiled[2]


def test_a_ratio_is_that_of_a_round():
    assert measure.ratio([1.0, 20.0, 3.0], [2.0, 10.0, 3.0]) == 1.0
