"""The notebooks run from top to bottom in a real kernel, with small budgets, and their stored outputs are what comes out."""

import pytest
from docs.run_notebooks import NOTEBOOKS, read, run
from docs.site_notebooks import page

from tests.printed.budgets import cut_cell

MOST = 300_000  # bytes of a notebook with its outputs


def kinds(cell) -> list[tuple[str, ...]]:
    """What a cell shows: the forms of each output. Lines of text may come in several parts."""
    shown = [tuple(sorted(one.data)) if "data" in one else (one.output_type, one.get("name", "")) for one in cell.outputs]
    return list(dict.fromkeys(shown))


def code(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_four():
    assert [file.stem for file in NOTEBOOKS] == [
        "first-run",
        "reading-a-comparison",
        "your-own-algorithm",
        "your-own-environment",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file, tmp_path):
    """An error in a cell is raised by `run`."""
    stored, notebook = read(file), read(file)
    for cell in code(notebook):
        cell.source, cell.outputs = cut_cell(cell.source), []
    run(notebook, tmp_path)
    for before, now in zip(code(stored), code(notebook), strict=True):
        assert kinds(before) == kinds(now), f"the outputs in {file.name} are old: run python -m docs.run_notebooks"
        if "progress_bar=True" in now.source:
            assert "width:100.0%" in now.outputs[0].data["text/html"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_stored_outputs(file):
    """All cells have run once, in order, without errors and warnings."""
    cells = code(read(file))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for one in cell.outputs:
            assert one.output_type != "error", cell.source
            assert one.get("name") != "stderr", one.text
    assert file.stat().st_size < MOST


def test_an_error_is_not_published():
    failed = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}
    cells = [{"cell_type": "markdown", "source": "# T"}, {"cell_type": "code", "source": ["1"], "outputs": [failed]}]
    with pytest.raises(ValueError, match="a stored notebook has an error: no"):
        page({"cells": cells}, "t.ipynb")


def test_a_page_of_a_notebook():
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["a < b\n", "\n", "c\n"]},
        {"output_type": "execute_result", "data": {"text/html": ["<b>rich</b>"], "text/plain": ["plain"]}},
        {"output_type": "display_data", "data": {"image/png": "iVBORw0=\n", "text/plain": ["<Figure>"]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "See [that](other.ipynb) and [this](../page.md#part)."]},
        {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": outputs, "metadata": {"alt": "a line"}},
    ]
    text = page({"cells": cells}, "own.ipynb")
    assert text.startswith("# Title\n\n[Download this notebook](own.ipynb)")
    assert "[that](other.md) and [this](../page.md#part)" in text
    assert "```python\nx = 1\nx\n```" in text
    assert "a &lt; b\nc</pre>" in text
    assert "<b>rich</b>" in text
    assert "plain" not in text
    assert 'alt="a line" src="data:image/png;base64,iVBORw0="' in text
    with pytest.raises(ValueError, match="say in its metadata what it shows"):
        page({"cells": [cells[0], {**cells[1], "metadata": {}}]}, "own.ipynb")
