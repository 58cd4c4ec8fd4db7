# SPDX-License-Identifier: Apache-2.0
"""HTML pages and tables, self-contained: no script, font or image is loaded. Light or dark follows the browser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6675; --line: #dfe4ea; --paper: #fff; --card: #f7f8fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa6b5; --line: #313a46; --paper: #14181e; --card: #1b2129 }
}
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif }
h1 { font-size: 1.7rem; margin: 0 0 .3rem } h2 { margin: 2.4rem 0 .6rem; font-size: 1.2rem }
p.subtitle { color: var(--soft); margin-top: 0 }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums }
.scroll { overflow-x: auto }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top }
td.number, th.number { text-align: right } th { color: var(--soft); font-weight: 600 }
figure { margin: 1rem 0; padding: .8rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px }
figcaption { font-weight: 600; margin-bottom: .4rem } svg { width: 100%; height: auto; display: block }
.key { font-weight: 400; color: var(--soft); margin-left: 1rem } .key i { display: inline-block; width: .75em;
  height: .75em; border-radius: 2px; margin-right: .35em; background: var(--c) }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft) } .end, .name { text-anchor: end }
.middle { text-anchor: middle } .value, .name { fill: var(--ink) } .grid { stroke: var(--line) }
.line { fill: none; stroke: var(--c); stroke-width: 1.6 } .bar, .block { fill: var(--c) } .bar { opacity: .88 }
.c0{--c:#3b7dd8}.c1{--c:#e2803c}.c2{--c:#2f9e77}.c3{--c:#b84a92}.c4{--c:#8a6fd1}.c5{--c:#c7a02c}.c6{--c:#4aa8b8}
.c7{--c:#d1545b}.c8{--c:#7a9a3a}.c9{--c:#7d8797}.c10{--c:#9c6b4a}.c11{--c:#5469a8}
.s0 { opacity: 1 } .s1 { opacity: .72 } .s2 { opacity: .5 } .s3 { opacity: .86 }
.yes { color: #2f9e77 } .no { color: #d1545b }
"""


def page(title: str, subtitle: str, sections: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a whole HTML page.

    *title* and *subtitle* are plain text. *sections* are pairs of a heading, plain text, and pieces of HTML.
    """
    body = [f"<h1>{escape(title)}</h1>", f'<p class="subtitle">{escape(subtitle)}</p>']
    for heading, pieces in sections:
        body.append(f"<h2>{escape(heading)}</h2>")
        body += pieces
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table; columns of numbers are right-aligned, `True` and `False` are shown as yes and no."""
    rows = [list(row) for row in rows]
    numeric = [
        all(
            isinstance(row[place], int | float) and not isinstance(row[place], bool) for row in rows
        )
        for place in range(len(headings))
    ]
    head = "".join(
        f'<th class="number">{escape(name)}</th>' if right else f"<th>{escape(name)}</th>"
        for name, right in zip(headings, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def paragraph(text: str) -> str:
    """Return plain text as an HTML paragraph."""
    return f"<p>{escape(text)}</p>"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return f'<td class="{"yes" if value else "no"}">{"yes" if value else "no"}</td>'
    if isinstance(value, int | float):
        return (
            f'<td class="number">{value:,.4g}</td>'
            if abs(value) < 1e4
            else f'<td class="number">{value:,.0f}</td>'
        )
    return f"<td>{escape('' if value is None else str(value))}</td>"
