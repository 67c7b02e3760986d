"""Files that were meant to do harm, or came to it: one clear error, no traceback, no hang, nothing outside the folder."""

import contextlib
import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stormpg import files, store
from stormpg.errors import InputError
from stormpg.options import read_toml

pytestmark = pytest.mark.slow
GOOD = Path(__file__).parent / "data" / "format-1"
CASES = int(os.environ.get("STORMPG_FUZZ_CASES", "150"))  # of each test; benchmarks/fuzz.py asks for more
QUICK = settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def load(folder: Path) -> None:
    """All that reads a run; what is wrong with it is an InputError."""
    with contextlib.suppress(InputError):
        run = store.Run(folder)
        run.algorithms()
        list(run.iterates("last"))
        run.first()


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(GOOD, tmp_path / "run")
    yield tmp_path / "run"
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "something was written outside the folder"


@QUICK
@given(key=st.sampled_from(sorted(json.loads((GOOD / "config.json").read_text()))), value=JSON)
def test_config_with_anything_in_it(folder, key, value):
    config = json.loads((GOOD / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    load(folder)


@QUICK
@given(st.binary(max_size=300))
def test_any_bytes_for_a_config(folder, content):
    (folder / "config.json").write_bytes(content)
    load(folder)


@QUICK
@given(position=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans())
def test_any_byte_of_a_saved_policy(folder, position, value, cut):
    for name in ("policy.safetensors", "state.safetensors"):
        content = bytearray((GOOD / name).read_bytes())
        content[position % len(content)] = value
        (folder / name).write_bytes(content[: position % len(content)] if cut else content)
    load(folder)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    file = tmp_path_factory.mktemp("checkpoint") / "checkpoint-1.safetensors"
    files.write_tensors(file, {"0/states/params": np.arange(30.0), "0/rows/live": np.ones((3, 2), bool)}, {"kind": "test"})
    return file


@QUICK
@given(position=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans())
def test_any_byte_of_a_checkpoint(checkpoint, tmp_path, position, value, cut):
    content, file = bytearray(checkpoint.read_bytes()), tmp_path / checkpoint.name
    content[position % len(content)] = value
    file.write_bytes(content[: position % len(content)] if cut else content)
    with contextlib.suppress(InputError):
        tensors, _ = files.read_tensors(file)
        for name, values in files.read_tensors(checkpoint)[0].items():  # the byte was none of the arrays'
            np.testing.assert_array_equal(tensors[name], values)


@QUICK
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4) | st.binary(max_size=100))
def test_any_toml(tmp_path, content):
    file = tmp_path / "job.toml"
    lines = b"\n".join(f"{k} = {json.dumps(v)}".encode() for k, v in content.items()) if isinstance(content, dict) else content
    file.write_bytes(lines)
    with contextlib.suppress(InputError):
        read_toml(file)


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
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(folder, bomb):
    before = {p for p in folder.parent.rglob("*")}
    (folder / "policy.safetensors").write_bytes(BOMBS[bomb])
    with pytest.raises(InputError, match=r"policy\.safetensors"):
        list(store.Run(folder).iterates("last"))
    assert {p for p in folder.parent.rglob("*")} == before


def test_wrong_shapes_and_absurd_sizes(folder):
    tensors, _ = files.read_tensors(GOOD / "policy.safetensors")
    files.write_tensors(folder / "policy.safetensors", {k: v[:1] for k, v in tensors.items()}, {})
    with pytest.raises(InputError, match="expected float32"):
        list(store.Run(folder).iterates("last"))
    config = json.loads((folder / "config.json").read_text())
    for change in ({"seeds": list(range(10)) * 10**3}, {"horizon": 10**30}, {"policies": [{"hidden": [10**9]}]}):
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(InputError):
            store.Run(folder)


def test_an_environment_in_a_config_cannot_run_code(folder):
    """`gym:module:ID` would import a module."""
    config = json.loads((folder / "config.json").read_text())
    for name in ("gym:antigravity:CartPole-v1", "gym:os:x", "../../etc/passwd", "__import__('os'):x"):
        (folder / "config.json").write_text(json.dumps({**config, "env": name}))
        with pytest.raises(InputError):
            store.Run(folder)
    np.testing.assert_equal("antigravity" in __import__("sys").modules, False)
