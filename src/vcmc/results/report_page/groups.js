// The section on groups: a caterpillar plot, sds by number of rows, and a table, all searchable.

const groups = data.groups;
const MAX_LABELLED = 100; // groups whose labels fit beside their intervals
const MAX_MARKED = 12; // groups found by a search whose labels are written into the plot
const MAX_LISTED = 200; // lines of the table
const MAX_DESCRIBED = 3; // groups found by a search whose numbers are written below it
const MAX_SHORT = 40; // groups whose plot is about as high as that of the sds beside it
const NO_ROWS_AT = 0.5; // groups without rows, on a logarithmic axis
const LABEL_CHARACTERS = 18;
const LABEL_HEIGHT = 14; // pixels
const MIN_GAP = 0.1; // pixels between intervals
const DENSE_TRANSPARENCY = 0.6; // where all layers of intervals overlap
let local = groups?.quantities[0];
let lines = []; // one for each group that the page holds
let found = null; // groups that the search found; null without a search

const shorten = (text) =>
  text.length > LABEL_CHARACTERS ? text.slice(0, LABEL_CHARACTERS - 1) + "…" : text;
const thousands = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const isFound = (line) => !found || found.has(line);

// The groups with the numbers of the selected quantity, highest mean first, ranks from the top.
function groupLines() {
  const last = groups.numGroups - 1;
  const all = groups.labels.map((label, i) => ({
    label, rows: groups.sizes?.[i], mean: local.mean[i], sd: local.sd[i], low: local.low[i],
    high: local.high[i], rank: local.ranks ? last - local.ranks[i] : undefined,
  }));
  all.sort((a, b) => (local.ranks ? a.rank - b.rank : b.mean - a.mean));
  all.forEach((line, i) => (line.rank ??= i));
  return all;
}

function describeGroup(line) {
  const [mean, sd, low, high] = [line.mean, line.sd, line.low, line.high]
    .map((value) => format(value, line.sd));
  const rows = line.rows === undefined ? "" : `, ${thousands(line.rows)} rows`;
  return `${line.label}: ${mean} ± ${sd}, 5–95 % from ${low} to ${high}${rows}`;
}

// Paths hold many groups in one element, so that thousands are drawn at once.
function paths(svg, className, selection, path, attributes) {
  if (!selection.length) return;
  svg.append(shape("path", { class: className, d: selection.map(path).join(""), ...attributes }));
}

// Write the group next to the pointer into the caption.
function readOut(box, container, nearest) {
  const caption = container.querySelector("figcaption");
  const text = caption.textContent;
  box.svg.addEventListener("pointermove", (event) => {
    const frame = box.svg.getBoundingClientRect();
    const scale = box.svg.viewBox.baseVal.width / frame.width;
    const line = nearest((event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale);
    caption.textContent = line ? describeGroup(line) : text;
  });
  box.svg.addEventListener("pointerleave", () => (caption.textContent = text));
}

function closest(distance) {
  let best = null;
  let least = Infinity;
  for (const line of lines) {
    const value = distance(line);
    if (value < least) [best, least] = [line, value];
  }
  return best;
}

function drawCaterpillar() {
  const container = byId("caterpillar");
  const count = groups.numGroups;
  const labelled = lines.length === count && count <= MAX_LABELLED;
  const step = labelled ? Math.max(13, Math.min(18, 300 / count)) : 640 / count;
  const longest = Math.max(...lines.map((line) => shorten(line.label).length));
  const margins = [8, 12, 40, labelled ? 14 + 6.6 * longest : 12];
  const caption = `mean and 5–95 % interval of ${local.label} by group, sorted by mean; ` +
    "line: average of all groups";
  const label = `Means and intervals of ${local.label} for ${count} groups`;
  const box = chart(container, 48 + count * step, label, margins, caption);
  const low = Math.min(...lines.map((line) => line.low ?? line.mean));
  const high = Math.max(...lines.map((line) => line.high ?? line.mean));
  const margin = 0.03 * (high - low);
  const x = horizontalAxis(box, low - margin, high + margin, local.label);
  const y = (line) => box.top + (line.rank + 0.5) * step;
  const at = x(local.average);
  const position = { x1: at, x2: at, y1: box.top, y2: box.bottom };
  box.svg.append(shape("line", { class: "shard", ...position }));
  drawIntervals(box.svg, lines.filter((line) => !isFound(line)), "faded", step, x, y);
  drawIntervals(box.svg, lines.filter(isFound), found ? "group found" : "group", step, x, y);
  if (labelled) {
    for (const line of lines) {
      const style = { x: box.left - 8, y: y(line) + 4, "text-anchor": "end" };
      box.svg.append(shape("text", { ...style, class: isFound(line) ? "" : "faded" },
        shorten(line.label)));
    }
  } else if (found) markFound(box, x, y);
  readOut(box, container, (_, pointer) => closest((line) => Math.abs(y(line) - pointer)));
}

// Leave out lines that are closer to the one before: the page may hold more groups at the ends.
function spaced(selection, y, gap) {
  let last = -Infinity;
  return selection.filter((line) => {
    const isFar = y(line) - last >= gap;
    if (isFar) last = y(line);
    return isFar;
  });
}

// Intervals that are closer than a pixel are drawn in transparent layers: where most of them are,
// the colour is darker.
function drawIntervals(svg, selection, className, step, x, y) {
  const interval = (line) =>
    `M${x(line.low).toFixed(1)},${y(line).toFixed(2)}H${x(line.high).toFixed(1)}`;
  const dot = (line) => `M${x(line.mean).toFixed(1)},${y(line).toFixed(2)}h0`;
  const isMarked = className.includes("found");
  const dense = step < 3 && !(isMarked && selection.length <= MAX_LABELLED);
  const numLayers = dense ? Math.min(8, Math.max(1, Math.round(1 / step))) : 1;
  const style = { "stroke-width": isMarked ? 2 : Math.min(1.5, Math.max(0.6, step / 4)) };
  if (dense) style["stroke-opacity"] = 1 - DENSE_TRANSPARENCY ** (1 / numLayers);
  const drawn = dense ? spaced(selection, y, MIN_GAP) : selection;
  for (let layer = 0; layer < numLayers; layer++) {
    const part = drawn.filter((_, i) => i % numLayers === layer);
    paths(svg, dense ? `${className} dense` : className, part, interval, style);
  }
  const size = Math.min(6, Math.max(2, step / 2));
  paths(svg, `${className} dots`, selection, dot,
    { "stroke-width": isMarked && !dense ? Math.max(6, size + 1) : size });
}

// Label the groups that were found, at the side of their interval that has room, without overlaps;
// the table has the others.
function markFound(box, x, y) {
  let last = -Infinity;
  for (const line of lines.filter(isFound).slice(0, MAX_MARKED)) {
    const height = Math.max(y(line) + 4, last + LABEL_HEIGHT);
    if (height > y(line) + 4 + LABEL_HEIGHT) continue; // too far from its interval
    last = height;
    const right = box.right - x(line.high) > 8 * shorten(line.label).length;
    const position = right ? { x: x(line.high) + 6, "text-anchor": "start" }
      : { x: x(line.low) - 6, "text-anchor": "end" };
    box.svg.append(shape("text", { class: "mark", ...position, y: height }, shorten(line.label)));
  }
}

// Add a horizontal logarithmic axis of numbers of rows; return the map from them to positions.
function rowsAxis(box, low, high) {
  const [from, to] = [Math.log(low / 1.15), Math.log(high * 1.15)];
  const x = (rows) => box.left +
    ((Math.log(Math.max(rows, NO_ROWS_AT)) - from) / (to - from)) * (box.right - box.left);
  const { svg, left, right, bottom } = box;
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  const factors = Math.log10(high / low) * 3 * 45 < right - left ? [1, 2, 5] : [1];
  const round = Array.from({ length: 12 }, (_, power) => factors.map((f) => f * 10 ** power));
  const values = [...(low < 1 ? [0] : []), ...round.flat()]
    .filter((value) => x(value) >= left && x(value) <= right);
  for (const value of values) {
    const position = { x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4 };
    svg.append(shape("line", { class: "axis", ...position }));
    const style = { x: x(value), y: bottom + 17, "text-anchor": "middle" };
    svg.append(shape("text", style, thousands(value)));
  }
  const title = { x: right, y: bottom + 33, "text-anchor": "end" };
  svg.append(shape("text", title, "rows of the group"));
  return x;
}

function verticalAxis(box, low, high, title) {
  const y = (value) => box.bottom - ((value - low) / (high - low || 1)) * (box.bottom - box.top);
  for (const [value, text] of ticks(low, high, 5)) {
    const position = { x1: box.left, x2: box.right, y1: y(value), y2: y(value) };
    box.svg.append(shape("line", { class: "axis", ...position }));
    const label = { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" };
    box.svg.append(shape("text", label, text));
  }
  box.svg.append(shape("text", { x: box.left, y: box.top - 8 }, title));
  return y;
}

function drawShrinkage() {
  const container = byId("shrinkage");
  if (!groups.sizes) return container.replaceChildren();
  const caption = "posterior sd by number of rows; grey line: sd of all groups' values together. " +
    "Groups near it or above have learnt little from their own rows, and are drawn towards the " +
    "others.";
  const label = `Posterior sd of ${local.label} by number of rows`;
  const box = chart(container, 280, label, [24, 14, 42, 52], caption);
  const sizes = lines.map((line) => Math.max(line.rows, NO_ROWS_AT));
  const x = rowsAxis(box, Math.min(...sizes), Math.max(1, ...sizes));
  const largest = Math.max(local.totalSd, ...lines.map((line) => line.sd));
  const y = verticalAxis(box, 0, 1.05 * largest, `sd of ${local.label}`);
  const at = y(local.totalSd);
  const position = { x1: box.left, x2: box.right, y1: at, y2: at };
  box.svg.append(shape("line", { class: "shard", "stroke-width": 1.5, ...position }));
  const dot = (line) => `M${x(line.rows).toFixed(1)},${y(line.sd).toFixed(1)}h0`;
  const size = lines.length > 1000 ? 3 : 5;
  paths(box.svg, "faded dots", lines.filter((line) => !isFound(line)), dot,
    { "stroke-width": size });
  paths(box.svg, "group dots", lines.filter(isFound), dot,
    { "stroke-width": found ? size + 2 : size });
  readOut(box, container, (px, py) =>
    closest((line) => Math.hypot(x(line.rows) - px, y(line.sd) - py)));
}

const groupColumns = [
  { title: "group", isName: true, key: (g) => g.label, text: (g) => g.label },
  { title: "rows", descendingFirst: true, key: (g) => g.rows,
    text: (g) => (g.rows === undefined ? "–" : thousands(g.rows)) },
  { title: "mean", descendingFirst: true, key: (g) => g.mean, text: (g) => format(g.mean, g.sd) },
  { title: "sd", descendingFirst: true, key: (g) => g.sd, text: (g) => format(g.sd, g.sd) },
  { title: "5 %", key: (g) => g.low, text: (g) => format(g.low, g.sd) },
  { title: "95 %", key: (g) => g.high, text: (g) => format(g.high, g.sd) },
];

function groupsNote() {
  if (!local)
    return `The model has groups (${groups.column}). No local parameters were drawn, as ` +
      'locals="none" asks; those above are global.';
  const num = thousands(groups.numGroups);
  const of = (count, all, what) => (count < all
    ? ` The page holds ${thousands(count)} of ${thousands(all)} ${what}` : "");
  const fewer = of(lines.length, groups.numGroups, "groups");
  const fewerQuantities = of(groups.quantities.length, groups.numQuantities, "local parameters");
  return `Local parameters of ${num} groups (${groups.column}). Type part of a label to find ` +
    "groups in both charts and in the table." +
    (fewer && `${fewer}, to stay small: those with the lowest and highest means, the fewest and ` +
      "most rows, and evenly spaced ones between them. The search sees these only; the " +
      "result has all.") +
    (fewerQuantities && `${fewerQuantities}.`);
}

function searchGroups(showGroups) {
  const term = byId("find-group").value.trim().toLowerCase();
  const matches = lines.filter((line) => line.label.toLowerCase().includes(term));
  found = term ? new Set(matches) : null;
  showGroups(matches);
  byId("group-count").textContent =
    `${thousands(matches.length)} of ${thousands(lines.length)} groups` +
    (matches.length > MAX_LISTED ? `, ${MAX_LISTED} of them in the table` : "");
  const described = term && matches.length <= MAX_DESCRIBED ? matches : [];
  byId("group-found").replaceChildren(
    ...described.map((line) => element("div", {}, `${describeGroup(line)}.`)),
  );
  drawGroups();
}

function drawGroups() {
  if (!local) return;
  drawCaterpillar();
  drawShrinkage();
}

function startGroups() {
  byId("groups").hidden = byId("groups-link").hidden = !groups;
  if (!groups) return;
  byId("parameters-title").textContent = "Global parameters";
  if (local) lines = groupLines();
  byId("groups-note").textContent = groupsNote();
  byId("groups-shown").hidden = !local;
  byId("groups-shown").classList.toggle("long", groups.numGroups > MAX_SHORT);
  if (!local) return;
  const showGroups = table(byId("group-table"), groupColumns, lines, undefined, MAX_LISTED);
  byId("local-choice").hidden = groups.quantities.length < 2;
  byId("local").append(...groups.quantities.map((q, i) => element("option", { value: i }, q.label)));
  byId("local").addEventListener("change", (event) => {
    local = groups.quantities[Number(event.target.value)];
    lines = groupLines();
    searchGroups(showGroups);
  });
  byId("find-group").placeholder = shorten(groups.labels[0]);
  byId("find-group").addEventListener("input", () => searchGroups(showGroups));
  searchGroups(showGroups);
}

startGroups();
