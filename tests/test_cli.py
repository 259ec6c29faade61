import re

from click.testing import CliRunner

from vcmc import demo
from vcmc.cli import main


def test_demo_prints_a_table_and_saves_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "NUM_ROWS", 2000)
    monkeypatch.setattr(demo, "NUM_SHARDS", 4)
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "pictures")], catch_exceptions=False)
    assert result.exit_code == 0
    for word in (
        "full-data NUTS",
        "consensus",
        "the paper's",
        "x4 (rare)",
        "largest error",
        "seconds",
        "The result is",
    ):
        assert word in result.output
    table = result.output.split("What vcmc says of itself")[0]
    assert len(re.findall(r"-?\d+\.\d{3} ± \d+\.\d{3}", table)) == 5 * 4
    assert (tmp_path / "pictures" / "demo.png").stat().st_size > 20_000


def test_help_has_an_example():
    result = CliRunner().invoke(main, ["demo", "--help"])
    assert result.exit_code == 0
    assert "vcmc demo --out pictures" in result.output


def test_an_unknown_command_is_an_error():
    result = CliRunner().invoke(main, ["dmeo"])
    assert result.exit_code == 2
    assert "No such command 'dmeo'" in result.output
