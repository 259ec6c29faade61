"""Rows as a model reads them: more columns than it needs, and categories by their names."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pytest

import vcmc
from vcmc.results.tree import make_tree

REGIONS = ["north", "south", "west"]
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "name": [f"person {number}" for number in range(300)],
        "region": rng.choice(REGIONS, 300),
        "age": np.where(np.arange(300) % 7 == 0, np.nan, 1.0),
        "y": rng.normal(size=300),
    }
)
FRAME["y"] += FRAME["region"].map({"north": 0.0, "south": 1.0, "west": 2.0})


def by_region(region, y=None):
    with numpyro.plate("region", 3):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mean[region], 1), obs=y)


def plain(**others):
    return vcmc.Model(
        {"mean": vcmc.Real(3)},
        lambda params: -0.5 * (params["mean"] ** 2).sum(),
        lambda params, rows: -0.5 * (rows["y"] - params["mean"][rows["region"]]) ** 2,
        **others,
    )


PLAIN = plain(dims={"mean": ["region"]}, coords={"region": REGIONS}, columns=["region", "y"])


def closed_form(frame):
    """Posterior means and sds by region, for priors N(0, 1) and unit variances."""
    groups = frame.groupby("region")["y"]
    precision = 1 + groups.count()
    return groups.sum() / precision, precision**-0.5


def check_against_closed_form(tree, frame=FRAME):
    means, sds = closed_form(frame)
    table = vcmc.summary(tree).to_frame()
    count = tree["posterior"].sizes["draw"]
    for region in REGIONS:
        entry = table.loc[f"mean[{region}]"]
        assert abs(entry["mean"] - means[region]) < 4 * sds[region] / np.sqrt(count)
        assert abs(entry["sd"] / sds[region] - 1) < 4 / np.sqrt(2 * count)


@pytest.fixture(scope="module")
def numpyro_model():
    with pytest.warns(UserWarning, match="does not read the columns 'name', 'age' of the rows"):
        return vcmc.from_numpyro(by_region, FRAME)


@pytest.fixture(scope="module")
def tree(numpyro_model):
    return vcmc.infer(numpyro_model, FRAME, num_shards=2, num_draws=1000)


def test_a_frame_with_other_columns_and_text_gives_labelled_exact_results(tree):
    check_against_closed_form(tree)


@pytest.mark.parametrize("form", ["parquet", "polars", "partition", "loader", "plain model"])
def test_rows_in_any_form_are_read_alike(form, numpyro_model, tmp_path):
    model, rows = numpyro_model, FRAME
    if form == "parquet":
        rows = tmp_path / "rows.parquet"
        FRAME.to_parquet(rows)
    elif form == "polars":
        rows = pl.from_pandas(FRAME)
    elif form == "partition":
        rows = vcmc.split(FRAME.drop(columns="age"), 2)  # which has the names, as numbers
    elif form == "loader":
        rows = load_half
    else:
        model = PLAIN
    tree = vcmc.infer(model, rows, num_shards=2, num_draws=1000)
    check_against_closed_form(tree)


def load_half(shard):
    return FRAME.iloc[shard::2]


def test_results_and_messages_have_the_labels(tree, tmp_path):
    diagnosis = vcmc.diagnose(tree)
    assert "mean[south]" in str(diagnosis)
    assert "mean[1]" not in str(diagnosis)
    assert "mean[south]" in diagnosis._repr_html_()
    assert "of mean[" in tree.attrs["verdict_text"]
    assert not any(f"mean[{number}]" in tree.attrs["verdict_text"] for number in range(3))
    page = vcmc.report(tree, tmp_path / "report.html").read_text()
    assert "mean[south]" in page
    assert "mean[1]" not in page


def test_warnings_about_shards_name_the_level_of_which_they_have_no_rows():
    rows = FRAME[["region", "y"]].sort_values("region", ignore_index=True)
    halves = [rows[:150], rows[150:]]
    with pytest.warns(vcmc.errors.DoubtfulWarning, match=r"mean\[(north|west)\]"):
        vcmc.infer(PLAIN, halves.__getitem__, num_shards=2, num_draws=200)


def test_predictions_know_the_levels_and_refuse_new_ones(tree, numpyro_model):
    new = pd.DataFrame({"region": ["west", "north"], "price": ["?", "?"]})
    predicted = vcmc.predict(tree, numpyro_model, new, "y")
    means, _ = closed_form(FRAME)
    np.testing.assert_allclose(predicted["mean"], [means["west"], means["north"]], atol=0.15)
    with pytest.raises(
        ValueError,
        match=r"rows\['region'\] must hold levels that are known, "
        r"'north', 'south', 'west'; got 'east'",
    ):
        vcmc.predict(tree, numpyro_model, new.assign(region="east"), "y")


def test_a_result_is_assessed_and_compared_with_the_frame_that_it_was_made_of(tree, numpyro_model):
    assert vcmc.diagnose(tree, numpyro_model, FRAME).verdict == "good"
    assert vcmc.loo(tree, numpyro_model, FRAME).n_data_points == len(FRAME)


def test_text_without_levels_is_refused_by_a_plain_model(tmp_path):
    FRAME[["region", "y"]].to_parquet(tmp_path / "rows.parquet")
    for rows in (FRAME[["region", "y"]], tmp_path / "rows.parquet"):
        with pytest.raises(
            ValueError,
            match=r"rows\['region'\] is text, and the model does not say "
            r"which numbers.*coords=\{'region'.*columns=",
        ):
            vcmc.infer(plain(), rows, num_shards=2)


def test_rows_that_were_split_with_other_levels_are_refused():
    partition = vcmc.split(FRAME[["region", "y"]], 2, levels={"region": REGIONS[::-1]})
    with pytest.raises(
        ValueError,
        match=r"split with the levels 'west', 'south', 'north' of "
        r"'region', but the model has 'north', 'south', 'west'.*model.levels",
    ):
        vcmc.infer(PLAIN, partition)
    tree = vcmc.infer(PLAIN, vcmc.split(FRAME[["region", "y"]], 2, levels=PLAIN.levels))
    check_against_closed_form(tree)


def test_text_beside_groups_is_encoded_and_other_columns_are_ignored():
    def model(region, school, num_schools, y=None):
        with numpyro.plate("region", 3):
            mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("school", num_schools):
            effect = numpyro.sample("effect", dist.Normal(0, 0.5))
        numpyro.sample("y", dist.Normal(mean[region] + effect[school], 1), obs=y)

    frame = FRAME.assign(school=[f"school {number % 20}" for number in range(300)])
    with pytest.warns(UserWarning, match="does not read the columns 'name', 'age'"):
        converted = vcmc.from_numpyro(model, frame, groups="school", num_groups="num_schools")
    tree = vcmc.infer(converted, frame, num_shards=2, num_draws=400)
    assert tree["posterior"]["mean"].coords["region"].to_numpy().tolist() == REGIONS
    assert tree["posterior"]["effect"].coords["school"].to_numpy()[:2].tolist() == [
        "school 0",
        "school 1",
    ]
    # effects and means are Gaussian: the joint posterior has a closed form
    design = np.zeros((300, 23))
    design[np.arange(300), [REGIONS.index(region) for region in frame["region"]]] = 1
    names = sorted(set(frame["school"]))
    design[np.arange(300), [3 + names.index(school) for school in frame["school"]]] = 1
    precision = design.T @ design + np.diag([1.0] * 3 + [4.0] * 20)
    mean = np.linalg.solve(precision, design.T @ frame["y"].to_numpy())
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    found = tree["posterior"]["mean"].mean(["chain", "draw"]).to_numpy()
    assert (np.abs(found - mean[:3]) / sd[:3] < 4 / np.sqrt(400)).all()


def test_pymc_models_number_text_by_their_coords():
    pm = pytest.importorskip("pymc")
    order = ["west", "north", "south"]
    with pm.Model(coords={"region": order}) as model:
        region = pm.Data("region", np.zeros(4, int))
        y = pm.Data("y", np.zeros(4))
        mean = pm.Normal("mean", 0, 1, dims="region")
        pm.Normal("obs", mean[region], 1, observed=y)
    with pytest.warns(UserWarning, match="does not read the columns 'name', 'age'"):
        converted = vcmc.from_pymc(model, FRAME)
    tree = vcmc.infer(converted, FRAME, num_shards=2, num_draws=1000)
    assert tree["posterior"]["mean"].coords["region"].to_numpy().tolist() == order
    check_against_closed_form(tree)
    with pm.Model() as unnamed:
        region, y = pm.Data("region", np.zeros(4, int)), pm.Data("y", np.zeros(4))
        mean = pm.Normal("mean", 0, 1, shape=3)
        pm.Normal("obs", mean[region], 1, observed=y)
    with pytest.raises(ValueError, match=r"rows\['region'\] is text, and the model must say which"):
        vcmc.from_pymc(unnamed, FRAME[["region", "y"]])


def test_rows_of_files_are_predicted_by_their_labels(tmp_path):
    pytest.importorskip("pyarrow")
    model = vcmc.from_numpyro(by_region, FRAME[["region", "y"]])
    draws = np.tile([0.0, 10.0, 20.0], (1, 200, 1))
    tree = make_tree({"posterior": {"mean": draws}}, {"num_shards": 1})
    new = pd.DataFrame({"region": ["west", "south"]})  # without north: the first is not number 0
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    expected = vcmc.predict(tree, model, new, progress=False)["mean"]
    np.testing.assert_allclose(expected, [20, 10], atol=0.5)
    for name in ("new.csv", "new.parquet"):
        predicted = vcmc.predict(tree, model, tmp_path / name, progress=False)["mean"]
        np.testing.assert_array_equal(predicted, expected)


@pytest.mark.parametrize("form", ["memory", "parquet", "split"])
def test_rows_without_the_outcome_are_refused(form, tmp_path):
    """NumPyro would draw it, and the log likelihood would be that of random numbers."""
    model = vcmc.from_numpyro(by_region, FRAME[["region", "y"]])
    tree = make_tree({"posterior": {"mean": np.zeros((1, 200, 3))}}, {"num_shards": 2})
    rows = FRAME[["region"]]
    if form == "parquet":
        pytest.importorskip("pyarrow")
        rows.to_parquet(tmp_path / "rows.parquet")
        rows = tmp_path / "rows.parquet"
    elif form == "split":
        rows = vcmc.split({"region": np.zeros(300, int)}, 2)
    message = (
        r"columns that the model reads, \['region', 'y'\]; \['y'\] are missing from \['region'\]"
    )
    for verb in (vcmc.loo, vcmc.evidence, vcmc.diagnose):
        with pytest.raises(ValueError, match=message):
            verb(tree, model, rows)
    with pytest.raises(ValueError, match=message):
        vcmc.infer(model, rows, num_shards=2)


def test_a_model_with_other_numbers_of_levels_is_refused():
    """Its levels were learnt from other rows: north would be number 1, and not number 0."""
    labels = {"dims": {"mean": np.array(["region"])}, "coords": {"region": np.array(REGIONS)}}
    tree = make_tree({"posterior": {"mean": np.zeros((1, 200, 3))}, **labels}, {"num_shards": 1})
    frame = FRAME.replace("south", "east")[["region", "y"]]
    others = vcmc.from_numpyro(by_region, frame)
    with pytest.raises(ValueError, match=r"'east', 'north', 'west'\] along 'region', but the tree"):
        vcmc.predict(tree, others, frame, progress=False)


def test_frames_with_columns_in_another_order_are_refused():
    def regression(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ beta, 1), obs=y)

    x = pd.DataFrame({"age": [1.0, 2.0], "income": [3.0, 5.0]})
    model = vcmc.from_numpyro(regression, {"x": x, "y": np.zeros(2)})
    tree = make_tree({"posterior": {"beta": np.zeros((1, 200, 2))}}, {"num_shards": 1})
    with pytest.raises(
        ValueError, match=r"in their order, \['age', 'income'\]; got \['income', 'age"
    ):
        vcmc.predict(tree, model, {"x": x[["income", "age"]]}, progress=False)
    vcmc.predict(tree, model, {"x": x.to_numpy()}, progress=False)  # without names
