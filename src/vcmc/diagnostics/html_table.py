"""Tables as HTML, for notebooks: diagnoses, summaries and comparisons share their form."""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = "text-align:{};padding:2px 8px;white-space:nowrap"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Return a table with a note below; the first column is on the left, others on the right."""
    lines = ["<table>", f"<thead>{_line('th', heads)}</thead>", "<tbody>"]
    lines += [_line("td", row) for row in rows]
    lines += ["</tbody>", "</table>"]
    return "\n".join(lines) + html_note(note)


def html_note(text: str) -> str:
    """Return a paragraph of text, or nothing if it is empty."""
    return f"\n<p>{escape(text)}</p>" if text else ""


def _line(tag: str, cells: Sequence[str]) -> str:
    sides = ["left", *["right"] * (len(cells) - 1)]
    columns = (
        f'<{tag} style="{STYLE.format(side)}">{escape(cell)}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(columns)}</tr>"
