"""Convert formulas to MathML when the site is built.

Browsers render MathML themselves, so the site needs no scripts or fonts from elsewhere.
"""

import html
import re
import unicodedata
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# The markup that pymdownx.arithmatex writes.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
ALPHABET = re.compile(r'<mi mathvariant="(double-struck|script)">([A-Za-z])</mi>')
FUNCTION = r"<m[io][^>]*>(?:log|det|exp|min|max|tr|Cov)</m[io]>"
AFTER_FUNCTION = re.compile(rf"({FUNCTION}|</munder>)(?=<m(?:i|n|sub|over|frac|row)\b)")
BEFORE_FUNCTION = re.compile(rf"(</m(?:i|n|sub|sup|frac|row)>)(?={FUNCTION})")
SPACE = '<mspace width="0.17em"/>'
RELATIONS = "\u223c\u2ab0\u227b\u21a6"  # ∼ ⪰ ≻ ↦: the converter takes some of them for letters


def on_page_content(markup: str, page: Any, **_: Any) -> str:
    """Replace every formula of a page by MathML, formulas in docstrings included."""

    def replace(match: re.Match[str]) -> str:
        markup = mathml(html.unescape(match[3]), match[2] == "[")
        if "\\" in markup:
            raise PluginError(f"{page.file.src_path}: unknown TeX command in formula: {match[3]}")
        return markup

    return FORMULA.sub(replace, markup)


def mathml(tex: str, is_block: bool) -> str:
    """Convert one formula to the subset of MathML that browsers support.

    Letters of other alphabets become single characters, and function names get thin spaces.
    """
    display = "block" if is_block else "inline"
    markup = html.unescape(convert(tex.replace(r"\sim", "\u223c"), display=display))
    markup = markup.replace("&", "&amp;")
    markup = ALPHABET.sub(
        lambda match: f'<mi mathvariant="normal">{_letter(match[1], match[2])}</mi>', markup
    )
    markup = re.sub(f"<mi>([{RELATIONS}])</mi>", r"<mo>\1</mo>", markup)
    bar = '<mo stretchy="false" lspace="0" rspace="0">|</mo>'
    markup = re.sub(r"<mo[^>]*>\|</mo>", bar, markup)
    markup = re.sub(r"<mo[^>]*>(det|log|exp|tr|Cov)</mo>", r"<mi>\1</mi>", markup)
    markup = markup.replace("\u00af</mo>", "\u203e</mo>")  # an overbar as wide as its letter
    return AFTER_FUNCTION.sub(rf"\1{SPACE}", BEFORE_FUNCTION.sub(rf"\1{SPACE}", markup))


def _letter(alphabet: str, letter: str) -> str:
    """Return a letter of another alphabet; Unicode has a few under shorter names."""
    name = f"{alphabet.upper()} {'CAPITAL' if letter.isupper() else 'SMALL'} {letter.upper()}"
    try:
        return unicodedata.lookup(f"MATHEMATICAL {name}")
    except KeyError:
        return unicodedata.lookup(name)
