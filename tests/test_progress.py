"""Lines, as in the logs of batch jobs; bars on a terminal are not tested."""

import contextlib
import os
import re
import subprocess
import sys

import pytest

from vcmc import progress
from vcmc.errors import Interrupted
from vcmc.progress import ProgressDisplay


def test_lines_report_stages_with_shards_draws_per_second_and_time_left(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL", -1.0)
    with ProgressDisplay("lines") as display:
        stage = display.stage("sample 4 shards", 400, num_shards=4)
        stage.advance(50)
        stage.advance(50)
        stage.count(1)
        stage.advance(100)
        stage.count(4)
        stage.advance(200)
        stage.advance(0)  # a finished stage writes no more lines
        whole = display.stage("combine", None)
        whole.advance()
        whole.finish()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sample 4 shards …"
    assert re.fullmatch(r"sample 4 shards: 50 %, 1/4 shards, [\d,]+ draws/s, \d+ s left", lines[3])
    assert re.fullmatch(r"sample 4 shards: done in \d+\.\d s \([\d,]+ draws/s\)", lines[4])
    assert lines[5] == "combine …"
    assert lines[6] == "combine: 1 steps"
    assert re.fullmatch(r"combine: done in \d+\.\d s", lines[7])
    assert len(lines) == 8


def test_lines_are_ten_seconds_apart(capsys):
    with ProgressDisplay("lines") as display:
        stage = display.stage("sample", 1000)
        for _ in range(999):
            stage.advance()
    assert capsys.readouterr().err == "sample …\n"


@pytest.mark.parametrize("mode", [True, False])
def test_without_a_terminal_nothing_is_shown_by_default(mode, capsys):
    with ProgressDisplay(mode) as display:
        display.stage("sample", 2).advance(2)
    assert capsys.readouterr().err == ""


def test_a_run_with_an_error_stops_at_the_next_step():
    display = ProgressDisplay(False)
    stage = display.stage("sample", 10)
    display.__exit__(RuntimeError, RuntimeError(), None)
    with pytest.raises(Interrupted):
        stage.advance()


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="True, False or \"lines\"; got 'bars'"):
        ProgressDisplay("bars")


RUN = """
import sys, vcmc, numpy as np
model = vcmc.Model(
    {"mean": vcmc.Real()},
    lambda params: -0.5 * params["mean"] ** 2,
    lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
)
rows = {"y": np.random.default_rng(0).normal(size=40)}
vcmc.infer(model, rows, num_shards=2, shard_draws=4, progress="lines")  # few draws: warnings
print("finished")
"""


@contextlib.contextmanager
def reader_gone():
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextlib.contextmanager
def full_pipe():
    """Fill a pipe that nobody reads: one more byte would wait for ever."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@contextlib.contextmanager
def full_disk():
    with open("/dev/full", "w") as file:
        yield file


@contextlib.contextmanager
def unchanged():
    yield None


def run(*arguments, stderr=unchanged, closed=False):
    """Run Python with another standard error, or with none; return exit code and output."""
    shell = ["sh", "-c", 'exec "$0" "$@" 2>&-'] if closed else []
    with stderr() as file:
        process = subprocess.run(
            [*shell, sys.executable, "-c", *arguments],
            stderr=file,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    return process.returncode, process.stdout


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{"closed": True}, {"stderr": reader_gone}])
def test_a_run_goes_on_without_standard_error(arguments):
    assert run(RUN, **arguments) == (0, "finished\n")


SHOW = """
import sys
from vcmc.errors import warn_user
from vcmc.progress import ProgressDisplay
if "object" in sys.argv:
    sys.stderr.close()
with ProgressDisplay("lines") as display:
    display.stage("sample", 10).advance(10)
warn_user("a warning", UserWarning)
print("finished")
"""


@pytest.mark.parametrize("stderr", [reader_gone, full_disk])
def test_progress_and_warnings_that_cannot_be_written_are_dropped(stderr):
    assert run(SHOW, stderr=stderr) == (0, "finished\n")


def test_a_closed_standard_error_is_not_written_to():
    assert run(SHOW, closed=True) == (0, "finished\n")
    assert run(SHOW, "object") == (0, "finished\n")


def test_progress_and_warnings_do_not_wait_for_a_pipe_that_nobody_reads():
    assert run(SHOW, stderr=full_pipe) == (0, "finished\n")


def test_a_terminal_that_goes_away_ends_no_run(monkeypatch):
    primary, secondary = os.openpty()
    terminal = os.fdopen(secondary, "w")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressDisplay(True) as display:
        stage = display.stage("sample", 10)
        stage.advance(5)
        os.close(primary)
        stage.advance(5)
    assert display.progress.finished
    with contextlib.suppress(OSError):  # it flushes
        terminal.close()
