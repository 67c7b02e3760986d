"""Atomic writing of files, and safetensors with a checksum. No file contains executable content."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.errors import InputError
from stormpg.files.reading import size_of
from stormpg.pytrees import Tree

MOST_HEADER = 2**24  # the largest number of bytes in a safetensors file apart from its arrays
FORMAT = 4
# Format 1 has no checksums, no block size and no checkpoints; 2 has no step counts and no identity; 3 has other names.
READABLE = (1, 2, 3, 4)


def save_tree(tree: Tree, file: Path) -> None:
    """Write a pytree of arrays as safetensors, with each leaf under its path. A random key is stored as its integers."""
    write_tensors(file, dict(leaves(tree)), {"kind": "stormpg tree", "format": str(FORMAT)})


def load_tree(like: Tree, file: str | os.PathLike[str]) -> Tree:
    """Return the pytree saved in a file, with the structure of `like`, whose leaves need only shape and dtype."""
    expected = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for _, leaf in _named(like))
    return fill(like, read_tensors(Path(file), 2 * expected + MOST_HEADER)[0], file)


def leaves(tree: Tree) -> list[tuple[str, np.ndarray]]:
    """Return the paths and leaves of a tree, as they are stored in safetensors."""
    return [(name, np.ascontiguousarray(_words(leaf))) for name, leaf in _named(tree)]


def leaves_like(tree: Tree, prefix: str) -> list[tuple[str, Any]]:
    """Return the paths, below `prefix`, and the leaves of a part of a tree."""
    return [("/".join(filter(None, (prefix, name))), leaf) for name, leaf in _named(tree)]


def fill(like: Tree, stored: Mapping[str, np.ndarray], file: Any) -> Tree:
    """Return the tree with the structure of `like`, from tensors stored under their paths. `file`: for error messages."""
    found = []
    for name, leaf in _named(like):
        expected = jax.eval_shape(_words, leaf)
        if name not in stored or stored[name].shape != expected.shape or stored[name].dtype != expected.dtype:
            held = f"{stored[name].dtype}{list(stored[name].shape)}" if name in stored else "nothing"
            raise InputError(f"{file} holds {held} under {name!r}; expected {expected.dtype}{list(expected.shape)}.")
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        words = jnp.asarray(stored[name])
        found.append(jax.random.wrap_key_data(words) if is_key else words)
    return jax.tree.unflatten(jax.tree.structure(like), found)


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """Write named arrays as safetensors with a checksum, atomically."""
    write_bytes(file, tensor_bytes(tensors, about))


def tensor_bytes(tensors: Mapping[str, np.ndarray], about: Mapping[str, str]) -> bytes:
    """Return the content of the file that `write_tensors` writes."""
    from safetensors.numpy import save

    # A single entry: safetensors writes several in random order, and equal content would give different files.
    content: bytes = save(dict(tensors), {"stormpg": json.dumps({**about, "checksum": checksum(tensors)})})
    return content


def read_tensors(file: Path, most: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the metadata of a safetensors file. Raise InputError if it is damaged or has been altered.

    `most`: the largest size of the file in bytes, if known. An array is never larger than its part of the file.
    """
    from safetensors import SafetensorError, safe_open

    size = size_of(file, "a safetensors file")
    if most is not None and size > most:
        raise InputError(f"{file} has {size:,} bytes; expected at most {most:,}.")
    try:
        with safe_open(file, framework="numpy") as content:
            about = json.loads((content.metadata() or {}).get("stormpg", "{}"))
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError, TypeError, MemoryError, AttributeError, RecursionError) as error:
        raise InputError(f"{file} is not a safetensors file, or is truncated ({error}).") from None
    if not isinstance(about, dict):
        raise InputError(f"{file} has no readable metadata; expected a file written by stormpg.")
    # Files of format 1 have no checksum.
    if "checksum" in about and about["checksum"] != checksum(tensors):
        raise InputError(f"{file} has been altered: its checksum is wrong.")
    return tensors, about


def checksum(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 checksum of the names, types, shapes and bytes of arrays."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        total.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        total.update(np.ascontiguousarray(value).data if value.size else b"")
    return total.hexdigest()


def _named(tree: Tree) -> list[tuple[str, Any]]:
    """Return the paths and leaves of a tree."""
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _words(leaf: Any) -> Any:
    """Return a leaf as it is stored: a random key as its integers, any other leaf unchanged."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def write_json(path: Path, content: Any) -> None:
    """Write JSON, atomically."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text, atomically."""
    write_file(path, lambda file: Path(file).write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes, atomically."""
    write_file(path, lambda file: Path(file).write_bytes(content))


def as_json(content: Any) -> Any:
    """Return content as it would be read from a JSON file."""
    return json.loads(json.dumps(content))


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary file, flush it to disk, and rename it to `path`.

    A reader therefore sees the complete old file or the complete new one.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        write(temporary)
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}); the files written before are unchanged. "
            "Free some disk space or give another folder."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush a file or a folder to disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # Windows cannot open folders
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
