"""The report page: its words, its size, and its use in a browser."""

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from xarray import DataArray

import vcmc
from vcmc.results.elpd_data import elpd_data
from vcmc.results.posterior_checks import Line, PosteriorCheck
from vcmc.results.tree import make_tree

NUM_SHARDS, FAR = 6, 4


def make(num_shards=NUM_SHARDS, dim=3, **attributes):
    """A result whose shard 4 is far off in beta[1]."""
    generator = np.random.default_rng(0)
    shards = generator.normal(size=(num_shards, 1, 100, dim))
    if num_shards > FAR:
        shards[FAR, ..., 1] += 40
    small = np.full(dim, 0.01)
    groups = {
        "posterior": {"beta": shards[:1, 0] / 3, "scale": np.exp(generator.normal(size=(1, 100)))},
        "subposterior": {
            "beta": shards,
            "scale": np.exp(generator.normal(size=(num_shards, 1, 100))),
        },
        "sample_stats": {
            "diverging": generator.random((num_shards, 1, 100)) < 0.02,
            "acceptance_rate": np.full((num_shards, 1, 100), 0.8),
        },
        "subposterior_rhat": {
            "beta": np.full((num_shards, dim), 1.001),
            "scale": np.full(num_shards, 1.01),
        },
        "subposterior_ess": {
            "beta": np.full((num_shards, dim), 90.0),
            "scale": np.full(num_shards, 80.0),
        },
        "sample_seconds": {
            "begin": np.arange(float(num_shards))[:, None],
            "end": np.arange(float(num_shards))[:, None] + 1.5,
        },
        "weights": {
            "beta": np.full((num_shards, dim), 1 / num_shards),
            "scale": np.full(num_shards, 1 / num_shards),
        },
        "optimization": {
            "objective": np.array([-9.0, -1.0, 0.0]),
            "objective_error": np.full(3, 0.1),
        },
        "mean_error": {"beta": np.linspace(0.02, 0.4, dim), "scale": np.array(0.01)},
        **{
            name: {"beta": small, "scale": np.array(0.01)}
            for name in ("mean_error_se", "sd_error", "sd_error_se")
        },
    }
    reason = "shards 4 disagree with the others <by far>."
    settings = {
        "num_shards": num_shards,
        "seed": 7,
        "shard_sizes": [1000] * num_shards,
        "seconds_sample": 12.5,
        "verdict": "poor",
        "verdict_text": f"The result is poor. Largest estimated errors: mean of beta[2]. {reason}",
        "verdict_reasons": [reason],
        "model": "Model(beta: Real)",
    }
    return make_tree(groups, settings | attributes)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("report") / "runs" / "report.html"  # its folder is made
    return vcmc.report(make(), where, title="A & B", command="vcmc run a.py:b 'c d.parquet'")


class Reader(HTMLParser):
    """What a page refers to, and whether its elements are closed."""

    def __init__(self):
        super().__init__()
        self.links, self.stack = [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "link", "input"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def data_of(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


def test_the_page_needs_nothing_but_itself(path):
    reader = Reader()
    reader.feed(path.read_text())
    assert reader.stack == []
    assert [link for link in reader.links if not link.startswith("#")] == ["data:,"]
    assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")


def test_the_page_has_the_verdict_and_the_numbers_of_the_result(path):
    text = path.read_text()
    assert "<h1>A &amp; B</h1>" in text
    assert "<p>The result is poor. Largest estimated errors: mean of beta[2].</p>" in text
    assert "<li>Shards 4 disagree with the others &lt;by far&gt;.</li>" in text
    assert "vcmc run a.py:b &#x27;c d.parquet&#x27;" in text
    assert "<th scope=row>seed</th><td>7</td>" in text
    data = data_of(path)
    first = data["quantities"][0]
    beta = make()["posterior"]["beta"].to_numpy()[..., 0]
    assert first["label"] == "beta[0]"
    assert (first["mean"], first["sd"]) == pytest.approx((beta.mean(), beta.std()), rel=1e-4)
    assert first["meanError"] == 0.02
    assert [
        shard["shard"]
        for shard in data["shards"]
        if abs(shard["distance"]) > data["outlierThreshold"]
    ] == [FAR]
    assert data["shards"][FAR]["distantIn"] == "beta[1]"
    assert data["shards"][2]["spans"] == [[2, 3.5]]
    assert data["shards"][0]["ess"] == 80


HOSTILE = "<!--<script>&amp;\u2028"


def test_key_figures_are_legible(tmp_path):
    """Thousands have spaces, and there is 1 shard."""
    tree = make_tree({"posterior": {"beta": np.zeros((4, 1250, 2))}}, {"num_shards": 1})
    text = vcmc.report(tree, tmp_path / "report.html").read_text()
    assert "<dt>shard</dt><dd>1</dd>" in text
    assert "<dt>combined draws</dt><dd>5\N{NARROW NO-BREAK SPACE}000</dd>" in text


def test_names_cannot_break_out_of_the_page(tmp_path):
    draws = np.random.default_rng(0).normal(size=(2, 1, 50))
    tree = make_tree(
        {"posterior": {HOSTILE: draws[0]}, "subposterior": {HOSTILE: draws}},
        {"model": HOSTILE + "</script>"},
    )
    where = vcmc.report(tree, tmp_path / "a.html", title=HOSTILE, command=HOSTILE + "</script>")
    text = where.read_text()
    embedded = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert not re.search("[<>&\u2028\u2029]", embedded)
    assert json.loads(embedded)["quantities"][0]["label"] == HOSTILE
    assert text.count("<!--") == 0
    reader = Reader()
    reader.feed(text)
    assert reader.stack == []


def test_only_a_report_is_overwritten(tmp_path):
    path = tmp_path / "posterior.html"
    path.write_text("<html>a page of the user's</html>")
    with pytest.raises(OSError, match=r"posterior.html exists and is not a report of vcmc"):
        vcmc.report(make(), path)
    assert path.read_text() == "<html>a page of the user's</html>"
    other = vcmc.report(make(), tmp_path / "other.html")
    before = other.read_text()
    assert vcmc.report(make(seed=8), other).read_text() != before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.html", "posterior.html"]


@pytest.mark.slow
def test_a_large_result_makes_a_page_below_two_megabytes(tmp_path):
    where = vcmc.report(make(num_shards=60, dim=900), tmp_path / "large.html")
    assert where.stat().st_size < 2e6
    data = data_of(where)
    assert len(data["quantities"]) == data["numQuantities"] == 901
    assert 500 < data["numDetailed"] < 901
    charts = {each["label"] for each in data["quantities"] if "quantiles" in each}
    assert {
        "beta[1]",
        "beta[899]",
    } <= charts  # the farthest shard's, and the one with the largest error
    assert "beta[0]" not in charts


def test_missing_groups_are_omitted(tmp_path):
    draws = np.random.default_rng(0).normal(size=(2, 1, 50))
    unfinished = make_tree(
        {"subposterior": {"a": draws}},
        {"num_shards": 3, "sound_shards": [0, 2], "warnings": ["1 is missing"]},
    )
    text = vcmc.report(unfinished, tmp_path / "a.html").read_text()
    assert "The run is not finished" in text
    assert "<li>1 is missing</li>" in text
    assert [shard["shard"] for shard in data_of(tmp_path / "a.html")["shards"]] == [0, 2]
    bare = make_tree({"posterior": {"a": np.ones((1, 50))}}, {})
    assert "was not diagnosed" in vcmc.report(bare, tmp_path / "b.html").read_text()
    labelled = make(model="Model(means: Exchangeable(3))")
    assert data_of(vcmc.report(labelled, tmp_path / "c.html"))["outlierThreshold"] is None


def test_bad_results_and_bad_paths_are_refused(tmp_path):
    with pytest.raises(
        TypeError, match="must be a result of infer, combine, refine or load; got dict"
    ):
        vcmc.report({}, tmp_path / "a.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot be written to"):
        vcmc.report(make(), tmp_path / "file" / "a.html")


# In a browser.

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="there is no Selenium: pip install selenium"
    )
    if not (chromium and driver):
        pytest.skip(
            "there is no Chromium with its driver: apt-get install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    except Exception as error:
        pytest.skip(f"Chromium does not start here: {str(error).splitlines()[0]}")
    yield started
    started.quit()


def visit(browser, path, width=1280, scheme="light", media="screen"):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get(path.as_uri())


def by_id(browser, name):
    return browser.find_element("id", name)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_the_screen_and_is_legible(width, scheme, browser, path):
    visit(browser, path, width, scheme)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for figure in ("density", "forest", "distances", "trace", "stages", "gantt"):
        box = browser.execute_script(
            "return document.querySelector('#' + arguments[0] + ' svg')"
            ".getBoundingClientRect().toJSON()",
            figure,
        )
        assert 0 <= box["left"] < box["right"] <= width
        assert box["height"] > 40
    pairs = browser.execute_script(
        "return [...document.querySelectorAll('p, td, th button, dd, .note, svg text')]"
        ".filter((e) => e.textContent.trim()).map((e) => [getComputedStyle(e).fill, "
        "getComputedStyle(e).color, e instanceof SVGElement, "
        "parseFloat(getComputedStyle(e).fontSize)])"
    )
    grounds = [ground_of(browser, selector) for selector in ("body", ".verdict")]
    assert (grounds[0].mean() > 128) == (scheme == "light")
    for fill, colour, is_drawn, size in pairs:
        assert size >= 12
        assert min(contrast(rgb(fill if is_drawn else colour), ground) for ground in grounds) >= 4.5


def ground_of(browser, selector):
    return rgb(
        browser.execute_script(
            "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor",
            selector,
        )
    )


def rgb(text):
    return np.array([float(part) for part in re.findall(r"[\d.]+", text)[:3]])


def contrast(one, other):
    """As the Web Content Accessibility Guidelines have it."""

    def luminance(colour):
        share = colour / 255
        linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
def test_the_reader_chooses_a_parameter(browser, path):
    visit(browser, path)
    before = browser.execute_script("return document.querySelector('#forest').innerHTML")
    by_id(browser, "choice").send_keys("beta[1]")
    assert by_id(browser, "about").text.startswith("beta[1]: ")
    assert browser.execute_script("return document.querySelector('#forest').innerHTML") != before
    num_red = "return document.querySelectorAll('#forest .outlier').length"
    assert browser.execute_script(num_red) == 3  # shard 4: two lines and a dot
    num_curves = "return document.querySelectorAll('#density path:not(.band)').length"
    assert browser.execute_script(num_curves) == NUM_SHARDS + 1
    by_id(browser, "next").click()
    assert by_id(browser, "about").text.startswith("beta[2]: ")


@pytest.mark.slow
def test_tables_can_be_searched_and_sorted(browser, path):
    visit(browser, path)
    names = (
        "return [...document.querySelectorAll('#table tbody th')]"
        ".map((e) => e.textContent).join(' ')"
    )
    assert browser.execute_script(names) == "beta[0] beta[1] beta[2] scale"
    by_id(browser, "find").send_keys("BETA")
    assert by_id(browser, "count").text == "3 of 4 parameters"
    browser.find_element("css selector", "#table thead th:nth-child(7) button").click()
    assert browser.execute_script(names) == "beta[2] beta[1] beta[0]"
    assert (
        browser.execute_script("return document.querySelectorAll('#table td.flagged').length") == 2
    )
    browser.find_element("css selector", "#table tbody tr:nth-child(2) button").click()
    assert by_id(browser, "about").text.startswith("beta[1]: ")


@pytest.mark.slow
def test_the_page_can_be_used_by_keyboard_alone(browser, path):
    from selenium.webdriver.common.keys import Keys

    visit(browser, path)
    visited = []
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        visited.append(
            browser.execute_script(
                "return document.activeElement.id || document.activeElement.ariaLabel"
            )
        )
        if visited[-1] == "choice":
            break
    assert "find" in visited
    browser.switch_to.active_element.send_keys(Keys.DOWN)
    assert by_id(browser, "about").text.startswith("beta[1]: ")
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    by_id(browser, "choice").send_keys(Keys.DOWN)
    for _ in range(3 + FAR):  # two buttons, then the shards of the chart
        browser.switch_to.active_element.send_keys(Keys.TAB)
    focused = browser.execute_script("return document.activeElement.getAttribute('aria-label')")
    assert focused.startswith(f"shard {FAR}: ")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert by_id(browser, "about").text.startswith("beta[1]: ")


@pytest.mark.slow
def test_the_page_prints_on_white_without_controls(browser, path):
    visit(browser, path, scheme="dark", media="print")
    assert ground_of(browser, "body").tolist() == [255, 255, 255]
    assert not browser.find_element("css selector", "nav").is_displayed()
    pdf = browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert len(pdf) > 20_000


OVERLAPS = """
const boxes = (svg) => [...svg.querySelectorAll("text")].map((text) => [
  text.textContent, text.getBoundingClientRect(),
]);
const overlap = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 &&
  a.top < b.bottom - 2 && b.top < a.bottom - 2;
return [...document.querySelectorAll("svg")].flatMap((svg) => boxes(svg).flatMap(
  ([text, box], i, all) => [
    ...all.slice(i + 1).filter(([, other]) => overlap(box, other)).map(([other]) => [text, other]),
    ...(box.width && (box.left < 0 || box.right > innerWidth) ? [[text, "edge"]] : []),
  ],
));
"""


def about_model(num_lines=3):
    """A check with an extreme statistic, and a cross-validation with an unreliable row."""
    generator = np.random.default_rng(0)
    lines = [Line("a statistic of my own", f"district {n} of some town") for n in range(num_lines)]
    replicated = generator.normal(size=(num_lines, 200))
    observed = np.append(1e3, np.zeros(num_lines - 1))
    pareto_k = np.append(np.linspace(0, 0.5, 99), 1.2)
    elpd = DataArray(-np.linspace(1, 2, 100), {"row": np.arange(100)}, ["row"])
    loo = elpd_data(
        "loo",
        elpd=-150.0,
        se=3.0,
        p=2.5,
        n_samples=1000,
        n_data_points=100,
        scale="log",
        warning=True,
        good_k=0.67,
        elpd_i=elpd,
        pareto_k=elpd.copy(data=pareto_k),
    )
    return {"checks": PosteriorCheck("y", lines, observed, replicated, "district"), "loo": loo}


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_labels_do_not_overlap(width, browser, tmp_path):
    large = make(num_shards=40)
    for group in ("posterior", "subposterior"):
        large[group]["beta"].values[...] = 123456789 + 1e7 * large[group]["beta"].values
    large["optimization"]["objective"].values[...] *= 1e8
    large.attrs["seconds_combine"] = 123456.0
    small = make(num_shards=12)
    for group in ("posterior", "subposterior"):
        small[group]["beta"].values[...] *= 1e-9
    for name, tree in {"large": large, "small": small, "groups": grouped(60)}.items():
        where = vcmc.report(tree, tmp_path / f"{name}.html", **about_model(50))
        visit(browser, where, width)
        assert browser.execute_script(OVERLAPS) == [], name
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_checks_and_cross_validation_have_sections(browser, path, tmp_path):
    visit(browser, path)
    for name in ("check", "loo", "check-link", "loo-link"):
        assert not by_id(browser, name).is_displayed()
    where = vcmc.report(make(), tmp_path / "a.html", **about_model())
    visit(browser, where, 390)
    assert browser.get_log("browser") == []
    text = by_id(browser, "check").text
    assert "y by district" in text
    assert "The data are unlike replicated data in a statistic of my own[district 0" in text
    assert len(browser.find_elements("css selector", "#check-0 circle.outlier")) == 1
    flagged = browser.find_elements("css selector", "#check td.flagged")
    assert [cell.text for cell in flagged] == ["< 0.01"]
    note = by_id(browser, "loo-note").text
    assert "(elpd_loo) −150.0, standard error 3.0" in note
    assert "Pareto k is above 0.67 for 1 of them" in note
    first = browser.find_element("css selector", "#loo-table tbody tr")
    assert first.text.split() == ["99", "1.20", "−2.00"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_rows_of_tables_are_whole_pixels(width, browser, tmp_path):
    """Names stay in place, and are drawn on their own: rounded apart, they cover their borders."""
    visit(browser, vcmc.report(make(), tmp_path / "a.html", **about_model()), width)
    heights = browser.execute_script(
        "return [...document.querySelectorAll('tbody tr')].filter((e) => e.offsetParent)"
        ".map((e) => e.getBoundingClientRect().height)"
    )
    assert len(heights) > 10
    np.testing.assert_allclose(heights, np.round(heights), atol=1e-6)


@pytest.mark.slow
def test_negative_and_large_weights_are_explained(browser, path, tmp_path):
    visit(browser, path)
    assert by_id(browser, "weights-note").text == ""
    tree = make()
    tree["weights"]["beta"].values[:, 0] = [-0.1, 0.6, 0.1, 0.1, 0.1, 0.2]
    visit(browser, vcmc.report(tree, tmp_path / "a.html"))
    note = by_id(browser, "weights-note").text
    assert "negative for shard 0, and more than 3 times an equal share for shard 1." in note
    by_id(browser, "next").click()
    assert by_id(browser, "weights-note").text == ""


def test_the_table_has_effective_draws(path):
    beta = vcmc.summary(make()).to_frame().loc["beta[0]"]
    assert data_of(path)["quantities"][0]["ess"] == pytest.approx(beta["ess"], rel=1e-4)


@pytest.mark.slow
def test_pages_of_all_kinds_are_drawn_without_errors(browser, tmp_path):
    draws = np.random.default_rng(0).normal(size=(2, 1, 50))
    trees = {
        "unfinished": make_tree({"subposterior": {"a": draws}}, {"num_shards": 2}),
        "constant": make_tree({"posterior": {"a": np.ones((1, 50))}}, {}),
        "combined": vcmc.combine(
            {"a": np.random.default_rng(0).normal(size=(3, 400))}, progress=False
        ),
        "one-shard": make(num_shards=1),
        "large": make(num_shards=40, dim=200),
    }
    for name, tree in trees.items():
        visit(browser, vcmc.report(tree, tmp_path / f"{name}.html"), 390)
        assert browser.get_log("browser") == [], name
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, name
        assert by_id(browser, "about").text, name


def grouped(num_groups, mode="draws", dim=1, num_draws=20):
    """A result with groups, whose means and numbers of rows grow with their numbers."""
    generator = np.random.default_rng(0)
    means = np.linspace(-1, 1, num_groups)[:, None] * np.ones(dim)
    noise = generator.normal(size=(num_draws, num_groups, dim))
    draws = means + 0.1 * (noise - noise.mean(axis=0))
    groups = {
        "posterior": {"mu": generator.normal(size=(1, num_draws))},
        "dims": {"alpha": np.array(["county", ""]), "num_rows": np.array(["county"])},
        "coords": {"county": np.array([f"county {each:06d}" for each in range(num_groups)])},
    }
    if mode == "draws":
        groups["posterior"]["alpha"] = draws[None]
    if mode == "summary":
        levels = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
        statistics = [draws.mean(axis=0), draws.std(axis=0), *levels]
        for name, values in zip(("mean", "sd", "q05", "q50", "q95"), statistics, strict=True):
            groups[f"local_{name}"] = {"alpha": values}
    if mode != "none":
        groups["group_sizes"] = {"num_rows": np.arange(num_groups)}
    return make_tree(groups, {"groups": "county"})


@pytest.mark.parametrize("mode", ["draws", "summary", "none"])
def test_groups_are_not_among_the_parameters(mode, tmp_path):
    where = vcmc.report(grouped(30, mode), tmp_path / "a.html")
    assert [line["label"] for line in data_of(where)["quantities"]] == ["mu"]
    facts = dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", where.read_text()))
    assert facts["global parameters"] == "1"
    assert facts.get("groups") == (None if mode == "none" else "30")


def test_a_hundred_thousand_groups_make_a_page_below_two_megabytes(tmp_path):
    where = vcmc.report(grouped(100_000, "summary", 3, num_draws=5), tmp_path / "large.html")
    assert where.stat().st_size < 2e6
    groups = data_of(where)["groups"]
    assert groups["numGroups"] == 100_000
    assert len(groups["labels"]) > 5000


def texts(browser, selector):
    script = f"return [...document.querySelectorAll({selector!r})].map((e) => e.textContent)"
    return browser.execute_script(script)


@pytest.mark.slow
@pytest.mark.parametrize(("num_groups", "width"), [(12, 1280), (85, 390), (2000, 390)])
def test_groups_are_found_by_part_of_a_label(num_groups, width, browser, tmp_path):
    visit(browser, vcmc.report(grouped(num_groups), tmp_path / "a.html"), width)
    assert by_id(browser, "parameters-title").text == "Global parameters"
    last = f"county {num_groups - 1:06d}"
    assert texts(browser, "#group-table tbody th")[:2] == [last, f"county {num_groups - 2:06d}"]
    labels = texts(browser, "#caterpillar text")
    assert (last in labels) == (num_groups <= 100)
    assert texts(browser, "#caterpillar .faded") == []
    by_id(browser, "find-group").send_keys("COUNTY 00000")
    assert by_id(browser, "group-count").text.startswith("10 of ")
    assert len(texts(browser, "#group-table tbody th")) == 10
    assert len(texts(browser, "#caterpillar path.faded")) > 0
    by_id(browser, "find-group").send_keys("3")
    assert texts(browser, "#group-table tbody th") == ["county 000003"]
    assert "county 000003" in texts(browser, "#caterpillar text")
    assert by_id(browser, "group-found").text.startswith("county 000003: −")
    dots = "return document.querySelector('#shrinkage .group.dots').getAttribute('d').split('M')"
    assert len(browser.execute_script(dots)) == 2  # nothing, and one point
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_the_reader_chooses_a_local_parameter(browser, tmp_path):
    visit(browser, vcmc.report(grouped(50, "summary", dim=2), tmp_path / "a.html"))
    before = texts(browser, "#group-table td")
    by_id(browser, "local").send_keys("alpha[1]")
    assert "alpha[1]" in texts(browser, "#caterpillar figcaption")[0]
    assert texts(browser, "#group-table td") != before
    browser.execute_script("document.querySelector('#group-table thead button').click()")
    assert texts(browser, "#group-table tbody th")[0] == "county 000000"


@pytest.mark.slow
def test_the_section_on_groups_says_what_is_missing(browser, path, tmp_path):
    visit(browser, path)
    assert not by_id(browser, "groups").is_displayed()
    assert not by_id(browser, "groups-link").is_displayed()
    visit(browser, vcmc.report(grouped(9, "none"), tmp_path / "a.html"))
    assert 'locals="none"' in by_id(browser, "groups-note").text
    assert not by_id(browser, "groups-shown").is_displayed()
    many = vcmc.report(grouped(40_000, "summary", num_draws=5), tmp_path / "b.html")
    visit(browser, many, 390)
    assert "of 40\N{NARROW NO-BREAK SPACE}000 groups" in by_id(browser, "groups-note").text
    assert browser.get_log("browser") == []
