// The two tables, and the parameter that the reader has selected.

const hasCharts = (quantity) => quantity.curves || quantity.quantiles;
const detailed = data.quantities.filter(hasCharts);
let selected = detailed[0];

const exceeds = (error) => Math.abs(error) > data.toleratedError;
const meanError = (q) => formatError(q.meanError, q.meanErrorSe, 1, 3);
const sdError = (q) => formatError(q.sdError, q.sdErrorSe, 100, 1);
const quantileErrors = (q) => q.q05Error === undefined ? ""
  : `${formatError(q.q05Error, q.q05ErrorSe, 1, 2)}, ${formatError(q.q95Error, q.q95ErrorSe, 1, 2)}`;
const quantileError = (q) => Math.max(Math.abs(q.q05Error ?? 0), Math.abs(q.q95Error ?? 0));

function parameterName(quantity) {
  if (!hasCharts(quantity)) return quantity.label;
  const onclick = () => select(quantity, true);
  return element("button", { type: "button", onclick }, quantity.label);
}

const showParameters = table(
  byId("table"),
  [
    {
      title: "parameter",
      isName: true,
      key: (q) => data.quantities.indexOf(q),
      text: parameterName,
    },
    { title: "mean", key: (q) => q.mean, text: (q) => format(q.mean, q.sd) },
    { title: "sd", key: (q) => q.sd, text: (q) => format(q.sd, q.sd) },
    { title: "5 %", key: (q) => q.low, text: (q) => format(q.low, q.sd) },
    { title: "95 %", key: (q) => q.high, text: (q) => format(q.high, q.sd) },
    {
      title: "effective draws",
      key: (q) => q.ess,
      text: (q) => (q.ess === null || q.ess === undefined ? "–" : thousands(Math.round(q.ess))),
    },
    {
      title: "error of mean, sd",
      descendingFirst: true,
      key: (q) => Math.abs(q.meanError ?? 0),
      isFlagged: (q) => exceeds(q.meanError),
      text: meanError,
    },
    {
      title: "error of sd, %",
      descendingFirst: true,
      key: (q) => Math.abs(q.sdError ?? 0),
      isFlagged: (q) => exceeds(q.sdError),
      text: sdError,
    },
    {
      title: "errors of 5 %, 95 %, sd",
      descendingFirst: true,
      key: quantileError,
      isFlagged: (q) => exceeds(quantileError(q)),
      text: quantileErrors,
    },
  ],
  data.quantities,
  (q) => ({ "data-label": q.label }),
);

function search() {
  const term = byId("find").value.trim().toLowerCase();
  const matches = data.quantities.filter((q) => q.label.toLowerCase().includes(term));
  const numListed = data.quantities.length;
  showParameters(matches);
  byId("count").textContent = `${matches.length} of ${numListed} parameters` +
    (data.numQuantities > numListed
      ? ` (this page lists the first ${numListed} of ${data.numQuantities})` : "");
  highlight();
}

function highlight() {
  for (const line of byId("table").querySelectorAll("tbody tr"))
    line.classList.toggle("selected", line.dataset.label === selected?.label);
}

function select(quantity, scroll) {
  if (!quantity) return;
  selected = quantity;
  byId("choice").value = byId("update-choice").value = String(detailed.indexOf(quantity));
  drawSelected();
  highlight();
  if (scroll) {
    byId("against").scrollIntoView();
    byId("choice").focus({ preventScroll: true });
  }
}

function describe(q) {
  if (q.mean === undefined) return `${q.label}: not combined yet.`;
  const [mean, sd, low, high] = [q.mean, q.sd, q.low, q.high].map((value) => format(value, q.sd));
  const errors = q.meanError === undefined ? ""
    : `; estimated errors: mean ${meanError(q)} sd, sd ${sdError(q)} %` +
      (quantileErrors(q) && `, 5 % and 95 % quantiles ${quantileErrors(q)} sd`);
  return `${q.label}: ${mean} ± ${sd}, 5–95 % from ${low} to ${high}${errors}.`;
}

// Explain weights that are negative, or several times those of an equal share.
function weightsNote(weights) {
  const relative = weights.map((weight) => weight * weights.length);
  const listed = (isListed) => {
    const numbers = relative.flatMap((weight, k) => (isListed(weight) ? [k] : []));
    const names = numbers.slice(0, 10).map((k) => data.shards[k]?.shard ?? k).join(", ");
    return numbers.length && `shard${numbers.length > 1 ? "s" : ""} ${names}` +
      (numbers.length > 10 ? ", …" : "");
  };
  const negative = listed((weight) => weight < -data.smallWeight);
  const large = listed((weight) => weight > data.largeWeight);
  if (!negative && !large) return "";
  const facts = [
    negative && `negative for ${negative}`,
    large && `more than ${data.largeWeight} times an equal share for ${large}`,
  ].filter(Boolean).join(", and ");
  return `The weight is ${facts}. That is no error in itself: shards are averaged by matrices, ` +
    "of which this is the entry for the parameter alone, and entries need not add up to one. Where " +
    "parameters are correlated within shards, what one entry adds others take away. A large " +
    "weight also marks a shard with much information on the parameter. The estimated errors above " +
    "say whether the average is right.";
}

function drawSelected() {
  if (!selected) {
    byId("about").textContent = "There are no draws to show.";
    return;
  }
  byId("about").textContent = describe(selected);
  byId("weights-note").textContent = weightsNote(selected.weights ?? []);
  drawDensity(selected);
  drawForest(selected);
  if (data.updates) drawUpdates(selected);
}

function draw() {
  drawSelected();
  drawGroups();
  drawChecks();
  drawDistances((label) => select(detailed.find((q) => q.label === label), true));
  drawObjective();
  drawStages();
  drawGantt();
}

byId("find").addEventListener("input", search);
for (const choice of [byId("choice"), byId("update-choice")]) {
  choice.append(...detailed.map((q, i) => element("option", { value: i }, q.label)));
  choice.addEventListener("change", (event) => select(detailed[Number(event.target.value)]));
}
const move = (offset) =>
  select(detailed[(detailed.indexOf(selected) + offset + detailed.length) % detailed.length]);
byId("previous").addEventListener("click", () => move(-1));
byId("next").addEventListener("click", () => move(1));
if (data.numDetailed < data.quantities.length) {
  const note = `Charts are limited to the ${data.numDetailed} parameters with the largest errors ` +
    `or disagreements, of ${data.quantities.length}, to keep the page small.`;
  byId("about").after(element("p", { class: "note" }, note));
}

const shardColumns = [
  { title: "shard", isName: true, key: (s) => s.shard, text: (s) => String(s.shard) },
  { title: "rows", name: "rows", digits: 0 },
  { title: "largest R-hat", name: "rhat", digits: 3, isFlagged: (s) => s.rhat > data.maxRhat },
  { title: "smallest ESS", name: "ess", digits: 0, isFlagged: (s) => s.ess < data.minEss },
  { title: "divergences", name: "divergences", digits: 0, isFlagged: (s) => s.divergences > 0 },
  { title: "acceptance", name: "acceptance", digits: 2 },
  { title: "most distant in", name: "distantIn" },
  { title: "distance", name: "distance", digits: 1, isFlagged: isOutlier },
  { title: "seconds", name: "seconds", digits: 1 },
].filter(({ name }) => !name || data.shards.some((shard) => shard[name] !== undefined));
for (const column of shardColumns) {
  column.key ??= (shard) => shard[column.name];
  column.text ??= (shard) => {
    const value = shard[column.name];
    if (value === null || value === undefined) return "–";
    return column.digits === undefined ? value : minus(value.toFixed(column.digits));
  };
}
table(byId("shards"), shardColumns, data.shards);

search();
select(selected);
draw();
let drawnWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === drawnWidth) return;
  drawnWidth = window.innerWidth;
  draw();
});
window.addEventListener("beforeprint", draw);
window.addEventListener("afterprint", draw);
