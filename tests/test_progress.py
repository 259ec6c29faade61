"""Progress: bars on a terminal are looked at, not tested; lines are what logs of batch jobs have."""

import re

import pytest

from vcmc import progress
from vcmc.errors import Interrupted
from vcmc.progress import ProgressDisplay


def test_lines_tell_stages_with_shards_draws_per_second_and_time_left(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", -1.0)
    with ProgressDisplay("lines") as bars:
        stage = bars.stage("sample 4 shards", 400, num_shards=4)
        stage.advance(50)
        stage.advance(50)
        stage.count(1)
        stage.advance(100)
        stage.count(4)
        stage.advance(200)
        stage.advance(0)  # once it is done, no more is told
        whole = bars.stage("combine", None)
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


def test_lines_come_now_and_then(capsys):
    with ProgressDisplay("lines") as bars:
        stage = bars.stage("sample", 1000)
        for _ in range(999):
            stage.advance()
    assert capsys.readouterr().err == "sample …\n"


@pytest.mark.parametrize("shown", [True, False])
def test_without_a_terminal_nothing_is_shown_unless_it_is_asked_for(shown, capsys):
    with ProgressDisplay(shown) as bars:
        bars.stage("sample", 2).advance(2)
    assert capsys.readouterr().err == ""


def test_a_run_that_was_given_up_stops_at_the_next_step():
    bars = ProgressDisplay(False)
    stage = bars.stage("sample", 10)
    bars.__exit__(RuntimeError, RuntimeError(), None)
    with pytest.raises(Interrupted):
        stage.advance()


def test_what_progress_may_be_is_said():
    with pytest.raises(ValueError, match="True, False or \"lines\"; got 'bars'"):
        ProgressDisplay("bars")
