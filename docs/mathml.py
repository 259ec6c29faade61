"""Formulas as MathML, made when the site is built: browsers show it by themselves, without scripts or fonts from elsewhere."""

import html
import re
import unicodedata
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL
)  # what pymdownx.arithmatex writes
ALPHABET = re.compile(r'<mi mathvariant="(double-struck|script)">([A-Za-z])</mi>')
NAME = r"<m[io][^>]*>(?:log|det|exp|min|max|tr|Cov)</m[io]>"
AFTER = re.compile(rf"({NAME}|</munder>)(?=<m(?:i|n|sub|over|frac|row)\b)")
BEFORE = re.compile(rf"(</m(?:i|n|sub|sup|frac|row)>)(?={NAME})")
SPACE = '<mspace width="0.17em"/>'
RELATIONS = (
    "\u223c\u2ab0\u227b\u21a6"  # as in "draws ∼ p": the converter takes some of them for letters
)


def on_page_content(markup: str, page: Any, **_: Any) -> str:
    """Put MathML in the place of every formula of a page, its docstrings' among them."""

    def formula(found: re.Match[str]) -> str:
        made = mathml(html.unescape(found[3]), found[2] == "[")
        if "\\" in made:
            raise PluginError(
                f"{page.file.src_path}: a formula has a command that is not known: {found[3]}"
            )
        return made

    return FORMULA.sub(formula, markup)


def mathml(tex: str, is_block: bool) -> str:
    """One formula, in what browsers know of MathML: letters of other alphabets are letters of their own, and names of functions stand apart."""
    made = html.unescape(
        convert(tex.replace(r"\sim", "\u223c"), display="block" if is_block else "inline")
    )
    made = made.replace("&", "&amp;")
    made = ALPHABET.sub(
        lambda found: f'<mi mathvariant="normal">{_letter(found[1], found[2])}</mi>', made
    )
    made = re.sub(f"<mi>([{RELATIONS}])</mi>", r"<mo>\1</mo>", made)
    made = re.sub(r"<mo[^>]*>\|</mo>", '<mo stretchy="false" lspace="0" rspace="0">|</mo>', made)
    made = re.sub(r"<mo[^>]*>(det|log|exp|tr|Cov)</mo>", r"<mi>\1</mi>", made)
    made = made.replace("\u00af</mo>", "\u203e</mo>")  # a bar over a letter, as wide as the letter
    return AFTER.sub(rf"\1{SPACE}", BEFORE.sub(rf"\1{SPACE}", made))


def _letter(alphabet: str, letter: str) -> str:
    """A letter of another alphabet; Unicode has a few of them under shorter names."""
    name = f"{alphabet.upper()} {'CAPITAL' if letter.isupper() else 'SMALL'} {letter.upper()}"
    try:
        return unicodedata.lookup(f"MATHEMATICAL {name}")
    except KeyError:
        return unicodedata.lookup(name)
