"""Malicious and damaged files: one clear error, no traceback, no hang, and nothing is written outside the folder.

benchmarks/fuzz.py applies the same mutations ten thousand times, to every kind of file.
"""

import importlib
import json
import os
import random
import re
import shutil
import sqlite3
import struct
import sys
from pathlib import Path

import gymnasium
import numpy as np
import polars
import pytest
from benchmarks import fuzz
from benchmarks.mutations import DIGITS, as_text, bytes_of, mutate

import stormpg
from stormpg import files
from stormpg.envs.from_files import from_file
from stormpg.errors import InputError
from stormpg.files.reading import read_json
from stormpg.runs import parquet, run_folder

pytestmark = pytest.mark.slow
evaluation = importlib.import_module("stormpg.evaluate")  # the package has a function of this name
GOOD = Path(__file__).parents[1] / "data" / "format-1"
CASES = 20  # of each kind of file
ALIKE = ("--seeds", "2", "--horizon", "4", "--S0", "3", "--B", "2", "--hidden", "3")  # so that runs share their programs


@pytest.fixture(scope="module")
def templates(made_once):
    """Template folders without figures, which nothing reads. To save time, all trials of the search have the same shape."""
    kinds = ("run", "begun", "compare", "reproduce", "tune", "toml", "bench")
    tune = ("tune", "pendulum", "--trials", "4", "--generation", "2", "--trajectories", "30", "--fresh-seeds", "2")

    def make(root):
        with fuzz.quickly(slow=False):
            with pytest.raises(SystemExit):
                fuzz.command(*tune, *ALIKE, "--out", str(root / "tune"))
            fuzz.make_templates(root, kinds)

    return made_once("templates", make)


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(GOOD, tmp_path / "run")
    yield tmp_path / "run"
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "something was written outside the folder"


@pytest.fixture
def run(templates, tmp_path):
    shutil.copytree(templates / "run", tmp_path / "run")
    return tmp_path / "run"


def with_config(folder: Path, **change) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    return folder


@pytest.mark.parametrize(
    "kind", [kind for kind in fuzz.KINDS if kind.folder not in ("theory", "gym")], ids=lambda kind: kind.name
)
@pytest.mark.filterwarnings("default")  # a skipped checkpoint gives a warning
def test_mutations(kind, templates, tmp_path, capsys):
    for number in range(CASES):
        dice, folder = random.Random(f"{kind.name} {number}"), tmp_path / str(number)
        shutil.copytree(templates / kind.folder, folder)
        mutate(dice.choice(sorted(path for path in folder.glob(kind.files) if path.is_file())), dice)
        with fuzz.quickly(slow=False):
            how, words = fuzz.outcome(lambda folder=folder: fuzz.DRIVERS[kind.drivers[0]](folder))
        assert how in ("accepted", "refused"), f"case {number}: {words}"
        said = capsys.readouterr().err.splitlines()
        assert sum(line.startswith("stormpg: ") for line in said) <= 1
        assert not any("panicked" in line for line in said)
        shutil.rmtree(folder)
    assert list(tmp_path.iterdir()) == []


PLANTED = "planted_by_a_test"


@pytest.mark.parametrize("name", ["run", "begun", "compare", "tune", "theory"])
def test_no_folder_has_a_module_imported(name, templates, tmp_path, monkeypatch, command):
    """`gym:module:ID` imports the module if a user requests it. A file may not request it."""
    (tmp_path / f"{PLANTED}.py").write_text(
        "import gymnasium\ngymnasium.register('X-v0', 'gymnasium.envs.classic_control:CartPoleEnv')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env, folder = f"gym:{PLANTED}:X-v0", tmp_path / name
    if name == "theory":
        folder.mkdir()
        (folder / "experiment.json").write_text(json.dumps({"kind": "theory", "environments": [env]}))
    else:
        shutil.copytree(templates / name, folder)
        about = folder / ("config.json" if name in ("run", "begun") else "experiment.json")
        about.write_text(about.read_text().replace('"pendulum"', f'"{env}"'))
    uses = {"run": [("evaluate",), ("render",), ("train", "--resume")], "begun": [("train", "--resume")]}
    for words in uses.get(name, [("report",)]):
        code, _, err = command(*words, str(folder))
        assert (code, err.count("\n")) == (2, 1)
        assert "a file may not ask for that" in err
        assert PLANTED not in sys.modules
    if name == "run":
        with pytest.raises(InputError, match="may not ask"):
            stormpg.Agent.load(folder)
    assert PLANTED not in sys.modules
    stormpg.make(env)  # this shows that the module can be imported
    assert sys.modules.pop(PLANTED)
    gymnasium.registry.pop("X-v0")


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("gym:GymV26Environment-v0", {"env_id": "antigravity:X"}),
        ("gym:Hopper-v5", {"xml_file": "/tmp/evil.xml"}),
        ("gym:Hopper-v5", {"xml_file": "../evil.xml"}),
        ("gym:CartPole-v1", {"render_mode": "human"}),
        ("gym:CartPole-v1", {"entry_point": "antigravity:X"}),
        ("gym:CartPole-v1", {"sutton_barto_reward": {"a": 1}}),
        ("gymnax:MNISTBandit-bsuite", {}),
        ("lqr", {"state_dim": 10**9}),
        ("__import__('os'):x", {}),
        ("../../etc/passwd", {}),
    ],
)
def test_settings_of_a_file_load_nothing(env, settings):
    with pytest.raises(InputError):
        from_file(env, settings, "config.json")
    assert "antigravity" not in sys.modules


def test_plain_settings_of_a_file_are_taken():
    assert from_file("lqr", {"state_dim": 3}, "config.json").observation_space.shape == (3,)
    assert from_file("gym:CartPole-v1", {"sutton_barto_reward": True}, "config.json").settings == {"sutton_barto_reward": True}


def test_a_changed_bit_of_the_table_is_noticed(run):
    content, config = (run / "metrics.parquet").read_bytes(), run_folder.read_config(run)
    good = run_folder.read_metrics(run)
    for bit in random.Random(0).sample(range(8 * len(content)), 300):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        (run / "metrics.parquet").write_bytes(changed)
        with pytest.raises(InputError, match="has been altered"):
            run_folder.read_metrics(run, config)
    (run / "metrics.parquet").write_bytes(content)
    assert run_folder.read_metrics(run)["return"].tobytes() == good["return"].tobytes()


def test_the_table_that_comes_back_is_the_one_that_was_stored(run):
    table, stored = run_folder.read_metrics(run), polars.read_parquet(run / "metrics.parquet")
    assert list(table) == stored.columns
    for name, column in table.items():
        np.testing.assert_array_equal(column, stored[name].to_numpy())


def test_a_table_of_an_earlier_version_has_no_checksum_and_is_read(folder):
    assert parquet.CHECKSUM not in json.loads((folder / "summary.json").read_text())
    assert len(run_folder.read_metrics(folder)["return"]) == 10


def test_panics_of_the_parquet_reader_are_one_error(folder, capfd):
    """polars panics on some damaged files. A panic is not an Exception, and its backtrace bypasses Python's stderr."""
    content, config, refused = (folder / "metrics.parquet").read_bytes(), run_folder.read_config(folder), 0
    for number in range(600):
        (folder / "metrics.parquet").write_bytes(bytes_of(content, random.Random(number)))
        try:
            run_folder.read_metrics(folder, config)
        except InputError:
            refused += 1
    assert refused > 300
    assert capfd.readouterr().err == ""


def write_millions(folder: Path) -> None:
    table = polars.read_parquet(GOOD / "metrics.parquet")
    many = polars.select(*(polars.repeat(table[n][0], 20_000_000, dtype=table[n].dtype).alias(n) for n in table.columns[:3]))
    rest = {n: polars.repeat(table[n][0], 20_000_000, dtype=table[n].dtype).alias(n) for n in table.columns[3:]}
    many.lazy().with_columns(**rest).sink_parquet(folder / "metrics.parquet")


@pytest.mark.parametrize("trajectories", [12, 2**31 - 1])
def test_a_table_that_claims_millions_of_rows_is_not_read(folder, made_once, trajectories):
    shutil.copy(made_once("millions", write_millions) / "metrics.parquet", folder / "metrics.parquet")
    with pytest.raises(InputError, match="claims 20,000,000 rows"):
        run_folder.read_metrics(with_config(folder, trajectories=trajectories))


@pytest.mark.parametrize("block", ["x", -1, 0, 1.5, True, 10**12, [1]])
def test_a_block_that_no_run_has(templates, tmp_path, command, block):
    shutil.copytree(templates / "begun", tmp_path / "begun")
    code, _, err = command("train", "--resume", str(with_config(tmp_path / "begun", block=block)))
    assert code == 2
    assert "config.json has block =" in err


def test_long_horizons_are_played_in_parts(monkeypatch):
    env = stormpg.make("pendulum")
    policy = stormpg.policy_for(env, hidden=(3,))
    params = policy.init(evaluation.episodes_key(0))
    play = lambda: evaluation.evaluate(env, policy, params, episodes=10, horizon=20)
    whole = play()
    monkeypatch.setattr(evaluation, "MEMORY", 2 * 4 * 20 * (3 + 1 + 1 + 3) * 4)  # four episodes
    parts = play()
    assert parts.returns.shape == whole.returns.shape == (10,)
    assert len(set(parts.returns.tolist())) == 10
    np.testing.assert_allclose(parts.returns[:4], whole.returns[:4], rtol=1e-5)
    monkeypatch.setattr(evaluation, "MEMORY", 1000)
    with pytest.raises(InputError, match="shorter horizon"):
        play()


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": list(range(10)) * 10**3},
        {"seeds": [2**40]},
        {"horizon": 10**7},
        {"horizon": 10**18},
        {"policies": [{"hidden": [10**9]}]},
        {"policies": [{"hidden": [10**6, 10**6]}]},
        {"policies": [{"hidden": [2] * 10**4}]},
        {"policies": [{"sigma": float("nan")}]},
        {"settings": [{"eta": float("inf"), "optimizer": 5}]},
        {"env": "x" * 300},
        {"trajectories": 0},
    ],
)
def test_absurd_sizes(folder, change):
    with pytest.raises(InputError):
        run_folder.Run(with_config(folder, **change)).algorithms()


def test_other_shapes_than_the_config_says(folder):
    tensors, _ = files.read_tensors(GOOD / "policy.safetensors")
    files.write_tensors(folder / "policy.safetensors", {k: v[:1] for k, v in tensors.items()}, {})
    with pytest.raises(InputError, match="expected float32"):
        list(run_folder.Run(folder).iterates("last"))


@pytest.mark.parametrize(
    "text", ["[" * 10**5, "[" * 100 + "]" * 100, as_text({"a": DIGITS}), '"\\ud800"', "\xff", str(10**20), "{"]
)
def test_json_that_is_not_read(tmp_path, text):
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"a\.json is not"):
        read_json(tmp_path / "a.json", "anything")


def test_a_large_file_is_not_read(tmp_path):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(2**40)  # sparse: takes no disk space
    with pytest.raises(InputError, match="1,099,511,627,776 bytes"):
        read_json(tmp_path / "a.json", "anything")


@pytest.mark.parametrize("name", ["config.json", "metrics.parquet", "policy.safetensors", "state.safetensors", "summary.json"])
@pytest.mark.parametrize("what", ["missing", "folder", "loop", "pipe", "device"])
def test_something_else_in_the_place_of_a_file(folder, name, what):
    file = folder / name
    file.unlink()
    {
        "missing": lambda: None,
        "folder": file.mkdir,
        "loop": lambda: file.symlink_to(name),
        "pipe": lambda: os.mkfifo(file),
        "device": lambda: file.symlink_to("/dev/zero"),
    }[what]()
    how, words = fuzz.outcome(lambda: (list(run_folder.Run(folder).iterates("last")), run_folder.Run(folder).first()))
    assert how == "refused" or name == "summary.json", words


def test_a_database_that_computes_is_not_opened(templates, tmp_path, command):
    endless = "CREATE VIEW more AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    for sql in (
        endless,
        "CREATE TABLE more (a, b AS (zeroblob(1000000000)))",
        "CREATE TRIGGER t AFTER INSERT ON trials BEGIN SELECT 1; END",
    ):
        shutil.rmtree(tmp_path / "tune", ignore_errors=True)
        shutil.copytree(templates / "tune", tmp_path / "tune")
        database = sqlite3.connect(tmp_path / "tune" / "study.db")
        database.execute(sql)
        database.commit()
        database.close()
        code, _, err = command("report", str(tmp_path / "tune"))
        assert (code, err.count("\n")) == (2, 1)
        assert "it is not opened" in err


NAMES = ["[/x]", "[bold]x", "$\\frac{$", "\x1b]0;owned\x07\x1b[2J", "a|b`c`<b>", "é" * 90]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are(run, command, name, tmp_path):
    """Names are shown unchanged in the terminal, in figures, in Markdown and in the page."""
    code, out, err = command("report", str(with_config(run, env=name, algorithm=name)), "--out", "report")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert (tmp_path / "report" / "figure1.png").stat().st_size > 1000
    text = (tmp_path / "report" / "tables.md").read_text()
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert {line.replace("\\|", "").count("|") for line in rows} == {5}
    outside_code = re.sub("`[^`]*`", "", text.replace("\\`", ""))
    assert "<b>" not in outside_code.replace("\\<b>", "")


@pytest.mark.parametrize("name", ["[/x]", "[bold]", "\x1b[2J", "a" * 300, "x" * 5000])
def test_folders_of_any_name(command, name):
    code, out, err = command("evaluate", f"nowhere/{name}")
    assert (code, err.count("\n")) == (2, 1)
    assert "\x1b" not in err
    assert "nowhere" in err
    code, out, err = command(
        "train", "pendulum", "--algorithm", "storm-pg", "--trajectories", "5", *ALIKE, "--out", f"D/{name}"
    )
    assert (code, err.count("\n")) in ((0, 0), (2, 1))
    assert "\x1b" not in out + err
    assert code == (2 if len(name) > 255 else 0)


def header(about: dict, data: bytes = b"") -> bytes:
    text = json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text + data


BOMBS = {
    "a header of 2^60 bytes": struct.pack("<Q", 2**60) + b"{}",
    "a tensor of a petabyte": header({"a": {"dtype": "F32", "shape": [2**48], "data_offsets": [0, 2**50]}}, b"\0" * 8),
    "offsets outside": header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, b"\0" * 8),
    "shapes that overflow": header({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}, b"\0" * 8),
    "a path for a name": header({"../../escape": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8),
    "deep JSON": struct.pack("<Q", 100_000) + b"[" * 100_000,
    "a pickle": b"\x80\x04\x95",
    "a zip": b"PK\x03\x04" + b"\0" * 100,
    "many tensors": header({str(i): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(10**4)}),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(folder, bomb):
    before = {p for p in folder.parent.rglob("*")}
    (folder / "policy.safetensors").write_bytes(BOMBS[bomb])
    with pytest.raises(InputError, match=r"policy\.safetensors"):
        list(run_folder.Run(folder).iterates("last"))
    assert {p for p in folder.parent.rglob("*")} == before
