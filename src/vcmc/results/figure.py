"""An empty matplotlib figure, or an error that says how to install matplotlib."""

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches, which notebooks display."""
    try:
        from matplotlib.figure import Figure  # optional, and slow to import
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed. Try: pip install 'vcmc[plots]'"
        ) from error

    class NotebookFigure(Figure):
        """A figure that notebooks display without pyplot, which would keep it open."""

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return NotebookFigure(figsize=(width, height), layout="constrained")
