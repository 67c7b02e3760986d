"""Hook of the site (mkdocs.yml): a page for every notebook, made from the file with the outputs that are stored in it.

The cells become Markdown, so that a notebook looks like every other page, the search finds it, and its links are checked. The
notebook itself is on the site too, to download.
"""

import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

PRE = "margin:0 0 1em 1em;overflow-x:auto;font-size:.85em;line-height:1.5"
TABLE = '<table border="1" class="dataframe">'
BOX = "margin:0 0 1.2em 1em;overflow-x:auto"


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every notebook."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = page(json.loads(Path(file.abs_src_path).read_text(encoding="utf-8")), Path(file.src_uri).name)
        files.append(File.generated(config, str(Path(file.src_uri).with_suffix(".md")), content=text))
    return files


def page(notebook: Mapping[str, Any], name: str) -> str:
    """The notebook as Markdown, with a link to the file below its title."""
    parts = []
    for cell in notebook["cells"]:
        source = joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\(([\w./-]+)\.ipynb", r"](\1.md", source))
        else:
            about = cell.get("metadata", {}).get("alt", "")
            parts += [f"```python\n{source}\n```", *(output(one, about) for one in cell["outputs"])]
    title, _, rest = parts[0].partition("\n")
    parts[0] = f"{title}\n\n[Download this notebook]({name}){{ download={name} }}\n{rest}"
    return "\n\n".join(parts) + "\n"


def output(one: Mapping[str, Any], about: str = "") -> str:
    """An output as HTML: the richest form that is stored. Without empty lines, which would end the HTML.

    `about`: the text of a picture, for those who cannot see it.
    """
    if one["output_type"] == "error":
        raise ValueError(f"a stored notebook has an error: {one['evalue']}. Run python -m docs.run_notebooks.")
    data = {"text/plain": one["text"]} if one["output_type"] == "stream" else one["data"]
    picture = next((kind for kind in ("image/gif", "image/png") if kind in data), None)
    if "text/html" in data:  # a table of polars has its own style: without it, it looks like the tables of the site
        table = re.sub(r"<style>.*?</style>", "", joined(data["text/html"]), flags=re.DOTALL)
        html = f'<div style="{BOX}">{table.replace(TABLE, "<table>")}</div>'
    elif picture is not None:
        if not about:
            raise ValueError('a cell shows a picture: say in its metadata what it shows, {"alt": "..."}.')
        source = "".join(joined(data[picture]).split())
        html = f'<div style="{BOX}"><img alt="{escape(about)}" src="data:{picture};base64,{source}"></div>'
    else:
        html = f'<pre style="{PRE}">{escape(joined(data["text/plain"]).rstrip())}</pre>'
    return re.sub(r"\n\s*\n", "\n", html)


def joined(text: str | list[str]) -> str:
    """A text, which notebooks may store as lines."""
    return text if isinstance(text, str) else "".join(text)
