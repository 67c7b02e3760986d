"""The imports between modules have no cycle, including imports inside functions."""

import ast
import re
import sys
from pathlib import Path

import stormpg

ROOT = Path(stormpg.__file__).parent


def modules() -> dict[str, Path]:
    names = {".".join(file.relative_to(ROOT.parent).with_suffix("").parts): file for file in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): file for name, file in names.items()}


def imports(file: Path, known: dict[str, Path]) -> set[str]:
    """The modules of this project that a file imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in inner}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known.keys()


def cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """The names of a cycle of imports, or None if there is no cycle."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return None
        found = next(filter(None, (visit(other, [*path, name]) for other in sorted(graph[name]))), None)
        done.add(name)
        return found

    return next(filter(None, (visit(name, []) for name in sorted(graph))), None)


def graph() -> dict[str, set[str]]:
    """The imports of each module."""
    known = modules()
    return {name: imports(file, known) for name, file in known.items()}


KNOWN, GRAPH = modules(), graph()


def test_a_cycle_is_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_no_module_imports_itself_by_way_of_others():
    assert len(GRAPH) > 100
    assert cycle(GRAPH) is None


def folder(name: str) -> str:
    """The folder of a module; for a top-level module, its own name."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "stormpg"


def test_no_folder_imports_itself_by_way_of_others():
    between = {folder(name): set[str]() for name in GRAPH}
    for name, others in GRAPH.items():
        between[folder(name)] |= {folder(other) for other in others} - {folder(name), "stormpg"}
    assert cycle(between) is None


def test_the_core_needs_no_more_than_jax():
    """Importing `stormpg` needs only jax, optax and numpy; safetensors and filelock are imported when they are used."""
    allowed = {"jax", "jaxlib", "numpy", "optax", "filelock", "stormpg"}
    core, todo = set[str](), ["stormpg"]
    while todo:
        name = todo.pop()
        if name not in core:
            core.add(name)
            top = ast.parse(KNOWN[name].read_text()).body
            for node in top:  # not inside functions
                if isinstance(node, ast.ImportFrom) and node.module:
                    inner = [f"{node.module}.{alias.name}" for alias in node.names]
                    named = [one if one in KNOWN else node.module for one in inner]
                elif isinstance(node, ast.Import):
                    named = [alias.name for alias in node.names]
                else:
                    continue
                for one in named:
                    package = one.partition(".")[0]
                    assert package in allowed or package in sys.stdlib_module_names, f"{name} imports {one}"
                    todo += [one] if one in KNOWN else []
    assert "stormpg.engine.compiled_loop" in core
    assert "stormpg.studies.study" not in core


def test_the_picture_is_up_to_date():
    """docs/architecture.svg shows the current imports; `python -m docs.draw_architecture` redraws it."""
    from docs.draw_architecture import PICTURE, drawing

    assert PICTURE.read_text() == drawing()


def test_the_files_that_the_page_names_exist():
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py|[\w/]+/)`", page))
    assert len(named) > 50
    for name in named:
        assert (ROOT / name).exists() or (ROOT.parents[1] / name).exists(), name
