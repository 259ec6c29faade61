"""Console output: one-line errors, verdicts and exit codes."""

import warnings
from types import SimpleNamespace

import click
import pytest

import vcmc
from vcmc.cli.console import conclude, errors_in_one_line, print_line


@pytest.mark.parametrize("kind", [ValueError, TypeError, OSError, ImportError, RuntimeError])
def test_errors_become_one_line(kind):
    with pytest.raises(click.ClickException) as raised, errors_in_one_line():
        raise kind("two\n  lines")
    assert raised.value.message == "two lines"


def test_bugs_keep_their_traceback():
    with pytest.raises(ZeroDivisionError), errors_in_one_line():
        raise ZeroDivisionError


def test_an_interrupt_says_how_to_resume(capsys):
    with pytest.raises(SystemExit) as raised, errors_in_one_line("type it again."):
        raise KeyboardInterrupt
    assert raised.value.code == 130
    assert capsys.readouterr().out == "interrupted; type it again.\n"


def test_only_doubtful_warnings_are_suppressed():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with errors_in_one_line():
            warnings.warn("in the verdict", vcmc.DoubtfulWarning, stacklevel=1)
            warnings.warn("not in the verdict", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["not in the verdict"]


def test_lines_are_printed_as_they_are(capsys):
    text = "runs/[bold]a/" + 200 * "x"
    print_line(text)
    assert capsys.readouterr().out == text + "\n"


@pytest.mark.parametrize("verdict", ["good", "unknown", "doubtful", "poor"])
def test_the_exit_code_follows_the_verdict(verdict, capsys):
    class Diagnosis(SimpleNamespace):
        def __str__(self):
            return f"The result is {self.verdict}."

    if verdict in ("good", "unknown"):
        conclude(Diagnosis(verdict=verdict), "Written.")
    else:
        with pytest.raises(SystemExit) as raised:
            conclude(Diagnosis(verdict=verdict), "Written.")
        assert raised.value.code == 3
    assert capsys.readouterr().out == f"The result is {verdict}.\nWritten.\n"
