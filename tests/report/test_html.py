"""Inline Markdown on the page."""

import pytest

from stormpg.report.html import inline


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run `stormpg tune` again", "run <code>stormpg tune</code> again"),
        ("`a*b*c` and *more*", "<code>a*b*c</code> and <em>more</em>"),
        ("**bold with `code`**", "<strong>bold with <code>code</code></strong>"),
        ("[page](https://example.org/a?b=1&c)", '<a href="https://example.org/a?b=1&amp;c">page</a>'),
        # What is no Markdown stays as it is.
        ("L* − L and 3 * 4 * 5", "L* − L and 3 * 4 * 5"),
        ("E‖g*‖ and E‖h*‖", "E‖g*‖ and E‖h*‖"),
        ("a ` alone, ** too", "a ` alone, ** too"),
        ("snake_case_name", "snake_case_name"),
        # Nothing becomes markup.
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("[x](data:text/html,1)", "[x](data:text/html,1)"),
        ("`<b>` **<i>**", "<code>&lt;b&gt;</code> <strong>&lt;i&gt;</strong>"),
        ('[<img>](https://a/"onclick="x)', '<a href="https://a/&quot;onclick=&quot;x">&lt;img&gt;</a>'),
    ],
)
def test_inline_markdown(words, expected):
    assert inline(words) == expected
