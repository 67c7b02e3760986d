"""Mutations that turn valid files into damaged and malicious ones, for benchmarks/fuzz.py and tests/runs/test_hostile.py.

A mutation depends only on the random generator, so a case can be repeated by its number.
"""

import json
import os
import random
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

PLANTED = "planted_by_a_file"  # a module that nothing may import
DIGITS = "a number of 5000 digits"  # a placeholder, because json cannot write such a number
NAMES = (
    "", "x", "[/x]", "[bold]", "$\\frac{$", "\x1b]0;title\x07\x1b[2J", "a|b`c`\n# d", "<script>alert(1)</script>", "a" * 300,
    "../../../etc/passwd", "/etc/passwd", f"gym:{PLANTED}:X-v0", f"{PLANTED}:X", "gym:CartPole-v1", "gym:GymV26Environment-v0",
    "lqr", "chain", "storm-pg", "svrpo", "\ud800", "\x00", "ж" * 90, "human", "1e999", "nan",
)  # fmt: skip
NUMBERS = (
    -1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 10**6, 10**7, 10**12, 10**30, -(10**12),
    0.0, -0.0, 0.5, 1e-320, 1e38, 1e308, float("inf"), float("-inf"), float("nan"), True, False, None, DIGITS,
)  # fmt: skip


def any_value(dice: random.Random) -> Any:
    """A number, a name, or an unexpected list or mapping."""
    deep: Any = []
    for _ in range(dice.choice((3, 70, 400))):
        deep = [deep]
    nested = [[], {}, [[]], {"a": {}}, [1, "x", None], list(range(1000)), ["x"] * 50, deep, {"choices": []}, "y" * 10**5]
    kind = dice.random()
    return dice.choice(NUMBERS) if kind < 0.45 else dice.choice(NAMES) if kind < 0.8 else dice.choice(nested)


def at_random(content: Any, dice: random.Random) -> Any:
    """Change JSON at a random place: another value, or a missing, added or repeated entry."""
    if not isinstance(content, dict | list) or not content or dice.random() < 0.15:
        if isinstance(content, int | float) and not isinstance(content, bool) and dice.random() < 0.3:
            return dice.choice((-content, content + 1, content * 1000, content / 2, str(content), [content]))
        return any_value(dice)
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    key, what = dice.choice(keys), dice.random()
    if isinstance(content, list):
        if what < 0.1:
            return content[:key] + content[key + 1 :]
        if what < 0.2:
            return content + content[: key + 1]
        return [at_random(value, dice) if place == key else value for place, value in enumerate(content)]
    if what < 0.08:
        return {name: value for name, value in content.items() if name != key}
    if what < 0.14:
        return {**content, str(dice.choice(NAMES)): any_value(dice)}
    return {name: at_random(value, dice) if name == key else value for name, value in content.items()}


def as_text(content: Any) -> str:
    """The text of a JSON file, including numbers that json does not write."""
    return json.dumps(content).replace(json.dumps(DIGITS), "1" * 5000)


def bytes_of(content: bytes, dice: random.Random) -> bytes:
    """Flip bits, or cut, remove, repeat or replace parts of the content."""
    if not content:
        return dice.randbytes(20)
    changed, a, b = bytearray(content), dice.randrange(len(content)), dice.randrange(len(content))
    match dice.randrange(8):
        case 0 | 1 | 2:
            for _ in range(dice.choice((1, 1, 1, 4, 30))):
                changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        case 3:
            del changed[a:]
        case 4:
            changed[a:a] = content[min(a, b) : max(a, b)][:4096]
        case 5:
            changed[a : a + 8] = dice.choice(
                (b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 2 ** dice.randrange(63)), b"\x80\x04\x95")
            )
        case 6:
            del changed[min(a, b) : max(a, b)]
        case _:
            changed = bytearray(dice.choice((b"", b"\xff\xfe\xfd", b"PK\x03\x04", b"[" * 10**5, dice.randbytes(200))))
    return bytes(changed)


def mutate(file: Path, dice: random.Random) -> None:
    """Damage a file in a way specific to its kind, or in a general way."""
    how = dice.random()
    if how < 0.04:
        misplaced(file, dice)
    elif how < 0.45 or file.suffix not in KINDS:
        file.write_bytes(bytes_of(file.read_bytes(), dice))
        if file.suffix == ".parquet":
            settle_checksum(file, dice)
    else:
        KINDS[file.suffix](file, dice)


def misplaced(file: Path, dice: random.Random) -> None:
    """Remove the file, or replace it with something that is not a regular file."""
    file.unlink()
    match dice.randrange(5):
        case 0:
            file.mkdir()
        case 1:
            file.symlink_to(file.name)
        case 2:
            os.mkfifo(file)
        case 3:
            file.symlink_to("/dev/zero")


def json_file(file: Path, dice: random.Random) -> None:
    file.write_text(as_text(at_random(json.loads(file.read_text()), dice)))


def toml_file(file: Path, dice: random.Random) -> None:
    lines = file.read_text().splitlines() or [""]
    value = dice.choice((dice.choice(NAMES), dice.choice(NUMBERS), [1, [2]], "1" * 5000, "[" * 5000, "1979-05-27", "{a = 1}"))
    written = as_text(value) if dice.random() < 0.6 else str(value)
    place = dice.randrange(len(lines))
    lines[place] = dice.choice((f"{lines[place].partition('=')[0]}= {written}", f"{written} = 1", f"[{written}]", written))
    file.write_text("\n".join(lines), errors="surrogatepass")


def parquet_file(file: Path, dice: random.Random) -> None:
    """Write a valid Parquet file that is not the table of the run."""
    import polars

    table = polars.read_parquet(file)
    name = dice.choice(table.columns)
    number = dice.choice([n for n in NUMBERS if isinstance(n, int | float) and not isinstance(n, bool) and abs(n) < 2**63])
    other: Callable[[], Any] = dice.choice(
        [
            lambda: table.drop(name),
            lambda: table.with_columns(polars.lit(number).alias(name)),
            lambda: table.with_columns(polars.lit("x" * dice.choice((1, 10**5))).alias(name)),
            lambda: table.with_columns(polars.lit(None).cast(table[name].dtype).alias(name)),
            lambda: table.sample(fraction=1.0, shuffle=True, seed=1),
            lambda: polars.concat([table] * 2),
            lambda: table.head(0),
            lambda: table[: max(len(table) // 2, 1)],
            lambda: table.reverse(),
            lambda: table.with_columns(polars.lit([1.0, 2.0]).alias(name)),
            lambda: long_table(table, dice.choice((10**4, 2 * 10**6))),
            lambda: polars.DataFrame({"a": [1]}),
        ]
    )
    other().write_parquet(file)
    settle_checksum(file, dice)


def settle_checksum(file: Path, dice: random.Random) -> None:
    """Update the checksum of a changed table, remove it as in earlier versions, or keep the old one."""
    from stormpg.runs import parquet

    summary = file.with_name("summary.json")
    known = json.loads(summary.read_text())
    known[parquet.CHECKSUM] = dice.choice((parquet.checksum_of(file), None, known.get(parquet.CHECKSUM)))
    summary.write_text(json.dumps(known))


def long_table(table: Any, rows: int) -> Any:
    """A table of a few kilobytes with up to millions of rows."""
    import polars

    return polars.select(*(polars.repeat(table[name][0], rows, dtype=table[name].dtype).alias(name) for name in table.columns))


def tensor_file(file: Path, dice: random.Random) -> None:
    """Write a changed header, or unexpected tensors with a correct checksum."""
    import numpy as np
    from safetensors.numpy import load_file

    from stormpg import files

    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    if dice.random() < 0.5:
        header = as_text(at_random(json.loads(content[8 : 8 + size]), dice)).encode(errors="surrogatepass")
        file.write_bytes(struct.pack("<Q", dice.choice((len(header), len(header), 2**60))) + header + content[8 + size :])
        return
    about = json.loads(json.loads(content[8 : 8 + size]).get("__metadata__", {}).get("stormpg", "{}"))
    tensors = load_file(file)
    name = dice.choice(sorted(tensors))
    match dice.randrange(6):
        case 0:
            del tensors[name]
        case 1:
            tensors[name] = tensors[name].astype(dice.choice((np.float64, np.int8, np.bool_)))
        case 2:
            tensors[name] = np.zeros(dice.choice(((0,), (1,), (10**5,), (3, 3, 3))), tensors[name].dtype)
        case 3:
            tensors[dice.choice(("99/states/params", "x", "../../x", "-1/rows/live", "0/rows/other"))] = np.zeros(3)
        case 4:
            tensors = {f"{name}{number}": np.zeros(0) for number in range(2000)}
        case _:
            values = (0, -1, 1e38, np.nan, np.inf) if tensors[name].dtype.kind == "f" else (0, 1, 120)
            tensors[name] = np.full_like(tensors[name], dice.choice(values))
    files.write_tensors(file, tensors, {k: v for k, v in about.items() if k != "checksum"})


def database_file(file: Path, dice: random.Random) -> None:
    """Change rows, remove tables, or add endless views and triggers."""
    with closing(sqlite3.connect(file)) as database, suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        table = dice.choice(tables)
        match dice.randrange(8):
            case 0:
                database.execute(f"DROP TABLE {table}")
            case 1:
                database.execute(f"DELETE FROM {table}")
            case 2:
                database.execute(f"ALTER TABLE {table} RENAME TO other")
                endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS trial_id FROM n"
                database.execute(f"CREATE VIEW {table} AS {endless}")
            case 3:
                database.execute(f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN SELECT randomblob(1000000000); END")
            case _:
                table = dice.choice([t for t in tables if database.execute(f"SELECT count(*) FROM {t}").fetchone()[0]])
                columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
                value = any_value(dice)
                value = value if isinstance(value, int | float | None) else as_text(value)
                database.execute(f"UPDATE OR IGNORE {table} SET {dice.choice(columns)} = ?", (value,))
        database.commit()


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    ".json": json_file,
    ".toml": toml_file,
    ".parquet": parquet_file,
    ".safetensors": tensor_file,
    ".db": database_file,
}
