"""ArviZ's table of models, printed with all its columns that say something.

pandas leaves out those in the middle where a line has 80 characters: the differences, which matter.
Since ArviZ 1, some columns have remarks, and are empty where there is none to make.
"""

from pandas import DataFrame

DECIMALS = 2  # of numbers that are printed


class ElpdTable(DataFrame):
    """A data frame of models, as ArviZ makes it. Parts of it are plain data frames."""

    def __repr__(self) -> str:
        filled = [name for name in self.columns if not (self[name] == "").all()]
        return self.to_string(columns=filled, float_format=f"{{:.{DECIMALS}f}}".format)
