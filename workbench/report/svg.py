"""Figures as SVG that stands in the text of a page: nothing is loaded, and ids of two figures do not meet."""

from __future__ import annotations

import io
import re
import warnings

import matplotlib
from matplotlib.figure import Figure

DPI = 150
"""Of what is drawn as pixels in a figure: cells that would be thousands of shapes."""


def inline(figure: Figure, name: str) -> str:
    """The figure as an `svg` element, its text as text. `name` tells its ids from those of other figures on the page.

    The same figure gives the same text: there is no date in it, and ids come from what they name.
    """
    written = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label may be longer than the chart
        figure.savefig(written, format="svg", dpi=DPI, transparent=True, metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text, count=1)
    used = set(re.findall(r"(?:url\(|href=\")#([^\")]+)", text))
    text = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", text)
    return _shorter(text).strip()


def _shorter(text: str) -> str:
    """The same picture in a third of the characters: hundredths of a point, and the style of many marks said once."""
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), text)
    alike = r'<use [^>]*?style="([^"]*)"/>\s*(?:<use [^>]*?style="\1"/>\s*)+'

    def group(marks: re.Match[str]) -> str:
        style = f' style="{marks[1]}"'
        return f"<g{style}>{marks[0].replace(style, '')}</g>"

    return re.sub(r"\s*\n\s*", "\n", re.sub(alike, group, text))
