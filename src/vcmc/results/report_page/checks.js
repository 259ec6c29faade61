// The sections on the model: posterior checks, and cross-validation with its worst rows.

const CHECK_STEP = 22; // pixels of a line
const MAX_DRAWN = 60; // lines of a chart; the table has all
const CHARACTER = 7; // pixels, the widest of an average label

// Write a share; with so many replicates none is told below one of them.
function share(value, count) {
  if (value === null || value === undefined) return "–";
  const digits = Math.max(2, Math.ceil(Math.log10(count)));
  return value === 0 ? `< ${(1 / count).toFixed(digits)}` : value.toFixed(digits);
}

function checkColumns(check) {
  const scale = (line) => line.sd || Math.abs(line.observed ?? 0) || 1;
  const column = (title, name) => ({
    title, key: (line) => line[name], text: (line) => format(line[name], scale(line)),
  });
  return [
    {
      title: "statistic", isName: true, key: (line) => check.lines.indexOf(line),
      text: (line) => line.label,
    },
    column("data", "observed"),
    column("replicated", "mean"),
    column("5 %", "low"),
    column("95 %", "high"),
    {
      title: "P(replicated ≥ data)", key: (line) => line.pValue,
      text: (line) => share(line.pValue, check.numReplicates),
    },
    {
      title: "two-sided p", key: (line) => line.twoSided,
      isFlagged: (line) => line.twoSided !== null && line.twoSided < check.extremeP,
      text: (line) => share(line.twoSided, check.numReplicates / 2),
    },
  ];
}

// Draw the data's statistics in sds of the replicated ones, which are centred at zero.
function drawCheck(container, check) {
  const lines = check.lines
    .filter((line) => line.sd > 0 && line.observed !== null && line.low !== null)
    .slice(0, MAX_DRAWN);
  if (!lines.length) return container.replaceChildren();
  const scaled = (line, name) => (line[name] - line.mean) / line.sd;
  const ends = (names) => lines.flatMap((line) => names.map((name) => scaled(line, name)));
  const extent = Math.min(8, Math.max(...ends(["smallest", "largest", "observed"]).map(Math.abs)));
  const caption = "red or grey: the data; blue: replicates, all and 5–95 %; in sds of replicates " +
    "around their mean. What is farther off than 8 sds is drawn at the edge.";
  const most = Math.floor((0.42 * (container.clientWidth || 640)) / CHARACTER);
  const short = ({ label }) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);
  const left = Math.max(60, CHARACTER * Math.max(...lines.map((line) => short(line).length)) + 12);
  const label = `Statistics of ${check.response} among replicated ones`;
  const box = chart(container, lines.length * CHECK_STEP + 50, label, [6, 16, 42, left], caption);
  const x = horizontalAxis(box, -1.05 * extent, 1.05 * extent, "sds of replicates", 1, 36);
  const at = (value) => x(Math.max(-extent, Math.min(extent, value)));
  lines.forEach((line, k) => {
    const y = box.top + (k + 0.5) * CHECK_STEP;
    const isExtreme = line.twoSided !== null && line.twoSided < check.extremeP;
    const bar = (from, to, width) => shape("line", {
      class: "replicates", x1: at(scaled(line, from)), x2: at(scaled(line, to)), y1: y, y2: y,
      "stroke-width": width,
    });
    const dot = { cx: at(scaled(line, "observed")), cy: y, r: 4.5 };
    const text = `${line.label}: data ${format(line.observed, line.sd)}, replicated ` +
      `${format(line.mean, line.sd)} ± ${format(line.sd, line.sd)}, two-sided p ` +
      share(line.twoSided, check.numReplicates / 2);
    const group = withTooltip(shape("g"), text);
    group.append(
      bar("smallest", "largest", 1.5),
      bar("low", "high", 6),
      shape("circle", { class: isExtreme ? "outlier" : "dot", ...dot }),
    );
    const position = { x: box.left - 8, y: y + 4, "text-anchor": "end" };
    box.svg.append(group, shape("text", position, short(line)));
  });
}

function drawChecks() {
  (data.checks ?? []).forEach((check, k) => drawCheck(byId(`check-${k}`), check));
}

function startChecks() {
  byId("check").hidden = byId("check-link").hidden = !data.checks?.length;
  (data.checks ?? []).forEach((check, k) => {
    const name = check.by ? `${check.response} by ${check.by}` : check.response;
    const fewer = check.lines.length < check.numLines
      ? ` The page has the ${check.lines.length} smallest p-values.` : "";
    const lines = element("table");
    const region = { class: "scroll tall", tabindex: 0, role: "region" };
    byId("checks").append(
      element("h3", {}, name),
      element("p", check.isExtreme ? { class: "finding" } : {}, check.sentence + fewer),
      element("figure", { id: `check-${k}` }),
      element("div", { ...region, "aria-label": `Statistics of ${name}` }, lines),
    );
    table(lines, checkColumns(check), check.lines);
  });
}

function looNote(loo) {
  const number = (value) => minus(value.toFixed(1));
  const units = loo.unit === "row" ? "rows" : `groups (${loo.unit})`;
  const text = `Expected log predictive density (elpd_${loo.kind}) ${number(loo.elpd)}, standard ` +
    `error ${number(loo.se)}; effective number of parameters ${number(loo.p)}; ` +
    `${thousands(loo.numRows)} ${units}, ${thousands(loo.numDraws)} draws. `;
  const verdict = loo.goodK === null ? "" : loo.numBad
    ? `Pareto k is above ${loo.goodK.toFixed(2)} for ${thousands(loo.numBad)} of them: their ` +
      "terms are unreliable, as the posterior changes much without them. Look at them first. "
    : `Pareto k is below ${loo.goodK.toFixed(2)} for all: the estimate is reliable. `;
  return `${text}${verdict}The table has the ${units} with the largest Pareto k, and those that ` +
    "the model predicts worst, with the lowest elpd." +
    (loo.unit === "row" ? " Rows are numbered from zero." : "");
}

function startLoo() {
  const loo = data.loo;
  byId("loo").hidden = byId("loo-link").hidden = !loo;
  if (!loo) return;
  byId("loo-note").textContent = looNote(loo);
  const fixed = (value) => (value === null ? "–" : minus(value.toFixed(2)));
  const columns = [
    {
      title: loo.unit, isName: true, key: (row) => loo.worst.indexOf(row), text: (row) => row.label,
    },
    {
      title: "Pareto k", name: "k", descendingFirst: true, key: (row) => row.k,
      isFlagged: (row) => row.k > loo.goodK, text: (row) => fixed(row.k),
    },
    { title: "elpd", key: (row) => row.elpd, text: (row) => fixed(row.elpd) },
  ].filter(({ name }) => !name || loo.goodK !== null);
  table(byId("loo-table"), columns, loo.worst);
}

startChecks();
startLoo();
