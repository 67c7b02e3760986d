"""Pages of algorithms, and what the documentation says of the comparison, agree with constructors and stored results."""

from docs.write_algorithms import PAGES, stored, texts

from stormpg.algorithms import ALGORITHMS
from stormpg.family.rows import ROWS


def test_pages_are_up_to_date():
    for file, text in texts(stored("scores.json"), stored("claims.json")).items():
        assert file.read_text(encoding="utf-8") == text, f"{file} is old: run python -m docs.write_algorithms"
    assert {file.stem for file in PAGES.glob("*.md")} == set(ALGORITHMS)
    assert {file.stem for file in PAGES.glob("*.png")} == set(ROWS)
