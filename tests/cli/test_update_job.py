"""What the command that made a run says about it, and which rows meet conditions."""

import numpy as np
import pytest

from vcmc.cli.update_job import RunInputs, matching


def test_the_command_of_a_run_names_its_model_columns_and_groups(tmp_path):
    (tmp_path / "command.txt").write_text(
        "vcmc run model.py:radon rows.parquet --out 'my run' --column x=a,b --groups county "
        "--num-groups num_counties --weights w --seed 3\n"
    )
    inputs = RunInputs(None).completed(tmp_path)
    assert inputs.model == "model.py:radon"
    assert inputs.columns == {"x": ["a", "b"]}
    assert inputs.names == ("county", "num_counties")
    assert inputs.weights == "w"
    assert RunInputs("other.py:model").completed(tmp_path).model == "other.py:model"


def test_rows_meet_all_conditions():
    rows = {
        "person": np.array([17, 17, 3]),
        "region": np.array(["north", "south", "north"]),
        "x": np.zeros((3, 2)),
    }
    assert matching(["person=17", "region=north"])(rows).tolist() == [True, False, False]
    with pytest.raises(ValueError, match="must be COLUMN=VALUE"):
        matching(["person"])
    with pytest.raises(ValueError, match=r"the run keeps, \['person', 'region'\]"):
        matching(["x=1"])(rows)
    with pytest.raises(ValueError, match="compares numbers"):
        matching(["person=Ann"])(rows)
