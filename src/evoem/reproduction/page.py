"""The report of an experiment as one self-contained HTML file."""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evoem.reproduction.comparison import Table
from evoem.reproduction.figures import Figures, as_bytes

UNFOLDED = 30  # rows, at most, of a table of facts that is shown at once
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; font-size: 13px; }
th, td { border: 1px solid #ccc; padding: 0.2rem 0.5rem; text-align: left; }
th { background: #f2f2f2; }
img { max-width: 100%; display: block; margin: 0.5rem 0 1.5rem; }
summary { font-size: 1.2em; font-weight: bold; margin: 0.5rem 0; cursor: pointer; }
.reduced { background: #fff3cd; padding: 0.5rem 0.8rem; }
"""


class Page(NamedTuple):
    """What a page shows."""

    title: str
    where: str
    shows: str
    reduced: str
    notes: Sequence[str]
    tables: Sequence[Table]
    figures: Figures
    facts: Mapping[str, Table]  # settings, versions, times


def write(page: Page) -> str:
    """The whole file."""
    body = [
        f"<h1>{html.escape(page.title)}</h1>",
        f"<p>{html.escape(page.shows)} In the paper: {html.escape(page.where)}.</p>",
    ]
    if page.reduced:
        body.append(f'<p class="reduced">Reduced: {html.escape(page.reduced)}</p>')
    if page.notes:
        listed = "".join(f"<li>{html.escape(note)}</li>" for note in page.notes)
        body.append(f"<ul>{listed}</ul>")
    body += [_table(table) for table in page.tables]
    for name, figure in page.figures.items():
        coded = base64.b64encode(as_bytes(figure, "png")).decode()
        caption = html.escape(name.replace("-", " "))
        body.append(f'<h2>{caption}</h2><img alt="{caption}" src="data:image/png;base64,{coded}">')
    body += [_folded(table) for table in page.facts.values()]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(page.title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _folded(table: Table) -> str:
    """A table that folds when its title is clicked, and is folded if it would hide the others."""
    title, rows = html.escape(table.title), _rows(table)
    shown = " open" if len(table.rows) <= UNFOLDED else ""
    return f"<details{shown}><summary>{title}</summary>{rows}</details>"


def _table(table: Table) -> str:
    return f"<h2>{html.escape(table.title)}</h2>{_rows(table)}"


def _rows(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><tr>{head}</tr>{rows}</table>"
