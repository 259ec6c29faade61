"""An empty figure, if there is something to draw it with."""

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """A figure of so many inches, which notebooks show; without matplotlib, an error that names what to install."""
    try:
        from matplotlib.figure import Figure  # here, not above: few need it
    except ImportError as error:
        raise ImportError(
            "a plot needs matplotlib, which is not installed. Try: pip install 'vcmc[plots]'"
        ) from error

    class NotebookFigure(Figure):
        """A figure that notebooks show without pyplot, which would keep it open."""

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return NotebookFigure(figsize=(width, height), layout="constrained")
