"""Console output: one-line errors, verdicts and exit codes."""

import os
import signal
import subprocess
import sys
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


def test_warnings_are_one_line_without_code():
    before = warnings.formatwarning
    with errors_in_one_line():
        own = warnings.formatwarning("4 rows\n were deleted.", vcmc.StoreWarning, "a.py", 1)
        other = warnings.formatwarning("theirs", UserWarning, "their.py", 1)
    assert own == "Warning: 4 rows were deleted.\n"
    assert other.startswith("their.py:1: UserWarning: theirs")
    assert warnings.formatwarning is before


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


WAIT_FOR_SIGNAL = """
import sys, numpy as np, vcmc
from vcmc.cli.console import errors_in_one_line
np.arange(100.0).tofile(sys.argv[1])
with errors_in_one_line("type it again."):
    partition = vcmc.split({"y": np.memmap(sys.argv[1], float)}, 2)
    print(partition.folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_command_deletes_its_copies_of_rows(sent, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", WAIT_FOR_SIGNAL, tmp_path / "y.bin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        text=True,
    ) as command:
        assert command.stdout is not None
        folder = command.stdout.readline().strip()
        assert os.path.isdir(folder)
        command.send_signal(sent)
        out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err) == (128 + sent, "terminated; type it again.\n", "")
    assert not os.path.exists(folder)


@pytest.mark.parametrize("shell", [[], ["sh", "-c", 'exec "$0" "$@" >&-']])
def test_a_command_whose_output_nobody_reads_ends_quietly(shell):
    reader, writer = os.pipe()
    os.close(reader)
    command = subprocess.run(
        [*shell, sys.executable, "-c", "from vcmc.cli import main; main()", "reproduce", "--list"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (command.returncode, command.stderr) == (0, "")


def test_characters_that_the_output_does_not_have_are_replaced(monkeypatch, tmp_path):
    with (tmp_path / "out.txt").open("w", encoding="ascii") as file:
        monkeypatch.setattr(sys, "stdout", file)
        print_line("✓ written")
        print_line("the end")
    assert (tmp_path / "out.txt").read_text() == "? written\nthe end\n"
