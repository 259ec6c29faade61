"""ArviZ's table of models, printed with all its columns.

pandas leaves out those in the middle where a line has 80 characters: the differences, which matter.
"""

from pandas import DataFrame

DECIMALS = 2  # of numbers that are printed


class ElpdTable(DataFrame):
    """A data frame of models, as ArviZ makes it. Parts of it are plain data frames."""

    def __repr__(self) -> str:
        return self.to_string(float_format=f"{{:.{DECIMALS}f}}".format)
