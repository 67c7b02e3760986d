"""Draw docs/architecture.svg: which part of the package imports which.

    python -m docs.draw_architecture

Arrows that follow from other arrows are left out. `tests/test_imports.py` checks that the picture is up to date.
"""

from collections.abc import Mapping
from html import escape
from pathlib import Path

from tests.test_imports import folder, graph

PICTURE = Path(__file__).with_name("architecture.svg")
GROUPS = {  # modules at the top level that share a box, with what the box says
    "algorithm": (
        *("algorithms", "trackers", "schedules", "steps", "rates", "contract"),
        *("estimators", "guards", "baselines", "scores", "windows"),
    ),
    "verbs": ("train", "evaluate", "agent", "own_loop", "testing"),
    "base": ("errors", "pytrees", "trajectories", "statistics", "version", "paper"),
}
WORDS = {
    "algorithm": "algorithms · trackers · schedules · steps · rates"
    "|contract · estimators · guards · baselines · scores · windows",
    "verbs": "train · evaluate · agent · own_loop · testing|what users call",
    "base": "errors · pytrees · trajectories · statistics · paper|used everywhere",
    "engine": "engine|one iteration, two loops",
    "sampling": "sampling|rollouts, episodes, Ray actors",
    "runs": "runs|training, table, result, folder, checkpoints",
    "studies": "studies|units, workers, protocols",
    "reproduce": "reproduce|the paper's claims",
    "family": "family|all successors compared",
    "report": "report|page, figures, tables, terminal, notebook",
    "machine": "machine|cores, devices, XLA, stopping, Ray",
    "kernels": "kernels|Triton, C",
    "policies": "policies|families, networks, acting",
    "envs": "envs|built-in, adapters",
    "files": "files|writing, reading",
    "theory": "theory|exact problems",
    "tune": "tune|Optuna",
    "bench": "bench|speed",
    "cli": "cli|the command",
    "films": "films|render",
}
WIDTH, LETTER, HEIGHT, GAP, ROW = 860, 7.4, 50, 26, 84  # pixels


def boxes() -> dict[str, set[str]]:
    """Which box imports which."""
    box = lambda name: next((group for group, members in GROUPS.items() if name in members), name)
    found: dict[str, set[str]] = {name: set() for name in WORDS}
    for module, others in graph().items():
        if folder(module) not in ("stormpg", "__main__"):  # which only list names
            found[box(folder(module))] |= {box(folder(other)) for other in others} - {box(folder(module)), "stormpg"}
    return found


def reduced(found: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that follow from others."""
    below: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in below:
            below[name] = found[name].union(*(reach(other) for other in found[name]))
        return below[name]

    return {name: {o for o in others if not any(o in reach(p) for p in others - {o})} for name, others in found.items()}


def rows(arrows: Mapping[str, set[str]]) -> dict[str, int]:
    """The row of each box: below all that import it."""
    row: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in row:
            row[name] = 1 + max((of(other) for other, below in arrows.items() if name in below), default=-1)
        return row[name]

    return {name: of(name) for name in arrows}


def placed(arrows: Mapping[str, set[str]]) -> dict[str, tuple[float, float, float]]:
    """The centre and the width of each box."""
    row, places = rows(arrows), dict[str, tuple[float, float, float]]()
    for number in range(max(row.values()) + 1):
        names = [name for name in WORDS if row[name] == number]
        sizes = [LETTER * max(map(len, WORDS[name].split("|"))) + 24 for name in names]
        left = (WIDTH - sum(sizes) - GAP * (len(names) - 1)) / 2
        for name, size in zip(names, sizes, strict=True):
            places[name] = (left + size / 2, 34 + ROW * number, size)
            left += size + GAP
    return places


def drawing() -> str:
    """The picture as SVG."""
    arrows = reduced(boxes())
    places = placed(arrows)
    height = max(y for _, y, _ in places.values()) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="Helvetica, sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#7a869a"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for name, others in arrows.items():
        x, y, _ = places[name]
        for other in sorted(others):
            to_x, to_y, _ = places[other]
            start, end = y + HEIGHT / 2, to_y - HEIGHT / 2
            bend = (start + end) / 2
            parts.append(
                f'<path d="M{x:.0f} {start:.0f} C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} {to_x:.0f} {end:.0f}" fill="none" '
                'stroke="#7a869a" stroke-width="1.3" marker-end="url(#tip)"/>'
            )
    for name, (x, y, size) in places.items():
        head, words = WORDS[name].split("|")
        fill = "#fde8d7" if name == "algorithm" else "#e3f1e7" if name == "verbs" else "#e8eef8"
        parts.append(
            f'<rect x="{x - size / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{size:.0f}" height="{HEIGHT}" rx="8" fill="{fill}" '
            'stroke="#4c5b73"/>'
        )
        parts.append(
            f'<text x="{x:.0f}" y="{y - 3:.0f}" text-anchor="middle" font-size="14" font-weight="600">{escape(head)}</text>'
            f'<text x="{x:.0f}" y="{y + 15:.0f}" text-anchor="middle" font-size="12" fill="#444">{escape(words)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing())
