"""Tables as HTML."""

from xml.etree import ElementTree

from vcmc.diagnostics.html_table import html_note, html_table


def test_cells_and_notes_are_escaped():
    text = html_table(["", "a<b"], [["x & y", "1"], ["<script>", "2"]], "p < 0.1")
    root = ElementTree.fromstring(f"<div>{text}</div>")
    cells = [[cell.text for cell in line] for line in root.iter("tr")]
    assert cells == [[None, "a<b"], ["x & y", "1"], ["<script>", "2"]]
    assert root.find("p").text == "p < 0.1"


def test_an_empty_note_is_nothing():
    assert html_note("") == ""
