"""The page of every algorithm agrees with its constructor and with the stored comparison."""

from docs.write_algorithms import PAGES, page, stored, summaries

from stormpg.algorithms import ALGORITHMS
from stormpg.family.rows import ROWS


def test_pages_are_up_to_date():
    scores, claims = stored("scores.json"), stored("claims.json")
    for name in ALGORITHMS:
        assert (PAGES / f"{name}.md").read_text(encoding="utf-8") == page(name, scores, claims), (
            "run python -m docs.write_algorithms"
        )
    assert {file.stem for file in PAGES.glob("*.md")} == set(ALGORITHMS)
    assert {file.stem for file in PAGES.glob("*.png")} == set(ROWS)


def test_summaries_are_up_to_date():
    for file, text in summaries(stored("scores.json"), stored("claims.json")).items():
        assert file.read_text(encoding="utf-8") == text, "run python -m docs.write_algorithms"
