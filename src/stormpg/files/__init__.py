"""Files that are whole or not there: safetensors with a checksum, JSON, text. Nothing in them is executable."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.errors import InputError
from stormpg.files.reading import size_of
from stormpg.records import Tree

MOST_HEADER = 2**24  # bytes of a safetensors file besides its arrays
FORMAT = 4
# 1 has no checksums, no block size and no checkpoints; 2 counts no steps and has no identity; 3 has other names in it.
READABLE = (1, 2, 3, 4)


def save_tree(tree: Tree, file: Path) -> None:
    """A pytree of arrays as safetensors, each leaf under its path; a random key as its words."""
    write_tensors(file, dict(leaves(tree)), {"kind": "stormpg tree", "format": str(FORMAT)})


def load_tree(like: Tree, file: str | os.PathLike[str]) -> Tree:
    """The pytree saved in a file, with the structure of `like`, whose leaves need only shape and dtype."""
    expected = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for _, leaf in _named(like))
    return fill(like, read_tensors(Path(file), 2 * expected + MOST_HEADER)[0], file)


def leaves(tree: Tree) -> list[tuple[str, np.ndarray]]:
    """The leaves of a tree by their paths, as safetensors holds them."""
    return [(name, np.ascontiguousarray(_words(leaf))) for name, leaf in _named(tree)]


def leaves_like(tree: Tree, prefix: str) -> list[tuple[str, Any]]:
    """The shapes of a part of a tree by their paths, below `prefix`."""
    return [("/".join(filter(None, (prefix, name))), leaf) for name, leaf in _named(tree)]


def fill(like: Tree, stored: Mapping[str, np.ndarray], file: Any) -> Tree:
    """The tree of this structure, from tensors by their paths."""
    found = []
    for name, leaf in _named(like):
        expected = jax.eval_shape(_words, leaf)
        if name not in stored or stored[name].shape != expected.shape or stored[name].dtype != expected.dtype:
            held = f"{stored[name].dtype}{list(stored[name].shape)}" if name in stored else "nothing"
            raise InputError(f"{file} holds {held} under {name!r}; expected {expected.dtype}{list(expected.shape)}.")
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        words = jnp.asarray(stored[name])
        found.append(jax.random.wrap_key_data(words) if is_key else words)
    return jax.tree.unflatten(jax.tree.structure(like), found)


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """Named arrays as safetensors, with a checksum of them all, whole or not at all."""
    write_bytes(file, tensor_bytes(tensors, about))


def tensor_bytes(tensors: Mapping[str, np.ndarray], about: Mapping[str, str]) -> bytes:
    """What `write_tensors` writes."""
    from safetensors.numpy import save

    # One entry alone: with several, safetensors would write them in any order, and equal files would not be equal.
    return save(dict(tensors), {"stormpg": json.dumps({**about, "checksum": checksum(tensors)})})


def read_tensors(file: Path, most: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a file, and what its writer said about it; InputError where it is not what was written.

    `most`: the bytes that it may have, where that is known. An array is never larger than the part of the file it is in.
    """
    from safetensors import SafetensorError, safe_open

    size = size_of(file, "a safetensors file")
    if most is not None and size > most:
        raise InputError(f"{file} has {size:,} bytes, and what is expected in it at most {most:,}.")
    try:
        with safe_open(file, framework="numpy") as content:
            about = json.loads((content.metadata() or {}).get("stormpg", "{}"))
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError, ValueError, TypeError, MemoryError, AttributeError, RecursionError) as error:
        raise InputError(f"{file} is not a safetensors file, or is cut short ({error}).") from None
    if not isinstance(about, dict):
        raise InputError(f"{file} does not say what it is.")
    # Files of format 1 have no checksum.
    if "checksum" in about and about["checksum"] != checksum(tensors):
        raise InputError(f"{file} has been altered: its checksum is wrong.")
    return tensors, about


def checksum(tensors: Mapping[str, np.ndarray]) -> str:
    """Of names, types, shapes and bytes."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        total.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        total.update(np.ascontiguousarray(value).data if value.size else b"")
    return total.hexdigest()


def _named(tree: Tree) -> list[tuple[str, Any]]:
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _words(leaf: Any) -> Any:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _json(content: Any) -> Any:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return lambda file: Path(file).write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """JSON, whole or not at all."""
    write_file(path, _json(content))


def write_text(path: Path, text: str) -> None:
    """Text, whole or not at all."""
    write_file(path, lambda file: Path(file).write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Bytes, whole or not at all."""
    write_file(path, lambda file: Path(file).write_bytes(content))


def as_json(content: Any) -> Any:
    """As a file of JSON gives it back."""
    return json.loads(json.dumps(content))


def write_file(path: Path, write: Any) -> None:
    """Beside its name, onto the disk, then renamed: a reader sees all of the old file or all of the new one."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        write(temporary)
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}); what was written before it is as it was. "
            "Make room or give another folder."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # Windows opens no folders
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
