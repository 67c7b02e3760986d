"""What the documentation takes from code and stored results is up to date, and what it names exists."""

import re
from pathlib import Path

from docs import write, write_choose
from docs.write_algorithms import PAGES

from stormpg.algorithms import ALGORITHMS
from stormpg.family.rows import ROWS, SUCCESSORS

ROOT = Path(__file__).resolve().parents[1]


def test_everything_that_is_written_is_up_to_date():
    texts = write.texts()
    assert {"README.md", "choose.md", "family.md", "glossary.md", "speed.md", "storm-pg.md"} <= {file.name for file in texts}
    for file, text in texts.items():
        assert file.read_text(encoding="utf-8") == text, f"{file} is old: run python -m docs.write"


def test_every_algorithm_has_a_page_and_every_row_a_figure():
    assert {file.stem for file in PAGES.glob("*.md")} == set(ALGORITHMS)
    assert {file.stem for file in PAGES.glob("*.png")} == set(ROWS)


def test_every_successor_is_in_one_group():
    grouped = [name for names in write_choose.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(SUCCESSORS)


def test_the_glossary_names_what_exists():
    """Each name in code occurs in the file that is given for it."""
    text = (ROOT / "docs" / "glossary.md").read_text().partition("## Words")[0].replace("\\|", "/")
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \| [^|]+ \| (`[^|]+`) \|$", text, re.MULTILINE)
    assert len(rows) > 20
    for names, files in rows:
        source = "".join((ROOT / "src" / "stormpg" / file).read_text() for file in re.findall(r"`([^`]+)`", files))
        for name in re.findall(r"[\w]+", names):
            assert re.search(rf"\b{name}\b", source), f"{name} is not in {files}"


def test_the_page_on_tests_names_files_that_exist():
    named = re.findall(r"`((?:\w+/)*(?:\w+\.py|\w+/))`", (ROOT / "docs" / "correctness.md").read_text())
    assert len(named) > 30
    for name in named:
        assert (ROOT / "tests" / name).exists() or (ROOT / name).exists(), name


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
