import pandas as pd

from vcmc.results.elpd_table import ElpdTable


def test_all_columns_are_printed_in_narrow_lines():
    columns = {f"a_long_name_{number}": [1.23456, -1.0] for number in range(12)}
    with pd.option_context("display.width", 80, "display.max_columns", 4):
        text = repr(ElpdTable(columns, index=["linear", "log"]))
        assert "..." in repr(pd.DataFrame(columns))
    assert "..." not in text
    assert text.count("1.23") == 12
    assert "1.2345" not in text
