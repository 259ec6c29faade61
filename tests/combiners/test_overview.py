from pathlib import Path

import pytest

import vcmc
from vcmc import combiners
from vcmc.combiners.overview import menu, overview, source


def test_the_table_in_the_docs_is_that_of_the_code():
    page = (Path(vcmc.__file__).parents[2] / "docs" / "combiners.md").read_text()
    assert overview() in page, "renew it: python -m vcmc.combiners.overview"


def test_the_menu_holds_all_combiners_and_nothing_else(members):
    assert set(menu()) == members(combiners, combiners.AbstractCombiner)


@pytest.mark.parametrize(
    ("combiner", "year"), [(combiners.Consensus, "(2016)"), (combiners.Swiss, "(2023)")]
)
def test_sources_end_with_the_year(combiner, year):
    assert source(combiner).endswith(year)
