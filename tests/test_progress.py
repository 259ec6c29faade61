"""Lines, as in the logs of batch jobs; bars on a terminal are not tested."""

import re

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
