"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const detailed = data.quantities.filter((each) => each.curves || each.quantiles);
let chosen = detailed[0];

// Small parts of the page.

function element(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...inside);
  return made;
}

function shape(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

function withTip(made, text) {
  made.append(shape("title", {}, text));
  return made;
}

function unpacked(text, bytes) {
  const raw = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const view = new DataView(raw.buffer);
  const top = bytes === 1 ? 255 : 65535;
  return Array.from({ length: raw.length / bytes }, (_, i) => (bytes === 1 ? view.getUint8(i) : view.getUint16(2 * i, true)) / top);
}

// Numbers as text: as many digits as an sd can tell apart.

function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  const scale = Math.abs(unit ?? value) || 1;
  const digits = Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(scale))));
  const text = Math.abs(value) >= 1e6 || (scale < 1e-6 && value !== 0) ? value.toPrecision(4) : value.toFixed(digits);
  return text.replace("-", "−");
}

const signed = (value, digits) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits);
const off = (value, error, scale, digits) =>
  value === null || value === undefined ? "–" : `${signed(scale * value, digits)} ± ${(scale * (error ?? 0)).toFixed(digits)}`;

// Tables that can be put in order.

function table(where, columns, lines, about = () => ({})) {
  let order = null;
  let down = false;
  let kept = lines;
  const head = element("tr");
  const body = element("tbody");
  columns.forEach((column) => {
    const button = element("button", { type: "button", onclick: () => sort(column) }, column.title);
    column.head = element("th", { scope: "col" }, button);
    head.append(column.head);
  });
  where.replaceChildren(element("thead", {}, head), body);

  function sort(column) {
    down = order === column ? !down : Boolean(column.downFirst);
    order = column;
    columns.forEach((each) => each.head.removeAttribute("aria-sort"));
    column.head.setAttribute("aria-sort", down ? "descending" : "ascending");
    fill(kept);
  }

  function fill(some) {
    kept = some;
    const sorted = [...some];
    if (order) {
      const key = (line) => order.key(line) ?? -Infinity;
      sorted.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    }
    body.replaceChildren(...sorted.map((line) => element("tr", about(line), ...columns.map((column) => cell(column, line)))));
  }

  function cell(column, line) {
    const inside = column.text(line);
    const attributes = column.far?.(line) ? { class: "far" } : {};
    return column.isName ? element("th", { scope: "row" }, inside) : element("td", attributes, inside);
  }

  fill(lines);
  return fill;
}

const largest = 0.1; // of an error that is tolerated
const fillTable = table(
  byId("table"),
  [
    { title: "parameter", isName: true, key: (q) => data.quantities.indexOf(q), text: (q) =>
      q.curves || q.quantiles ? element("button", { type: "button", onclick: () => choose(q, true) }, q.label) : q.label },
    { title: "mean", key: (q) => q.mean, text: (q) => shown(q.mean, q.sd) },
    { title: "sd", key: (q) => q.sd, text: (q) => shown(q.sd, q.sd) },
    { title: "5 %", key: (q) => q.low, text: (q) => shown(q.low, q.sd) },
    { title: "95 %", key: (q) => q.high, text: (q) => shown(q.high, q.sd) },
    { title: "mean off by, sd", downFirst: true, key: (q) => Math.abs(q.off ?? 0), far: (q) => Math.abs(q.off) > largest, text: (q) => off(q.off, q.offSe, 1, 3) },
    { title: "sd off by, %", downFirst: true, key: (q) => Math.abs(q.sdOff ?? 0), far: (q) => Math.abs(q.sdOff) > largest, text: (q) => off(q.sdOff, q.sdOffSe, 100, 1) },
  ],
  data.quantities,
  (q) => ({ "data-label": q.label }),
);

function find() {
  const wanted = byId("find").value.trim().toLowerCase();
  const found = data.quantities.filter((each) => each.label.toLowerCase().includes(wanted));
  fillTable(found);
  const more = data.numQuantities > data.quantities.length ? ` (the first ${data.quantities.length} of ${data.numQuantities} are on this page)` : "";
  byId("count").textContent = `${found.length} of ${data.quantities.length} numbers${more}`;
  mark();
}

function mark() {
  for (const line of byId("table").querySelectorAll("tbody tr")) line.classList.toggle("chosen", line.dataset.label === chosen?.label);
}

// Charts. They are drawn as wide as there is room, and again when that changes.

function widthOf(where) {
  return Math.max(260, where.clientWidth || 640);
}

function ticks(low, high, most, least = 0) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= Math.max(rough, least)) ?? Math.max(rough, least);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) found.push(at);
  const digits = Math.min(10, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return found.map((at) => [at, at.toFixed(digits).replace(/^-0(\.0*)?$/, "0$1").replace("-", "−")]);
}

function chart(where, height, label, margins, caption) {
  const width = widthOf(where);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  where.replaceChildren(svg, ...(caption ? [element("figcaption", {}, caption)] : []));
  const [top, right, bottom, left] = margins;
  return { svg, left, top, right: width - right, bottom: height - bottom };
}

function across(box, low, high, title, least) {
  const place = (value) => box.left + ((value - low) / (high - low || 1)) * (box.right - box.left);
  box.svg.append(shape("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  for (const [at, text] of ticks(low, high, (box.right - box.left) / 75, least)) {
    box.svg.append(shape("line", { class: "axis", x1: place(at), x2: place(at), y1: box.bottom, y2: box.bottom + 4 }));
    box.svg.append(shape("text", { x: place(at), y: box.bottom + 17, "text-anchor": "middle" }, text));
  }
  if (title) box.svg.append(shape("text", { x: box.right, y: box.bottom + 33, "text-anchor": "end" }, title));
  return place;
}

function names(box, labels, place, room) {
  const every = Math.max(1, Math.ceil((14 * labels.length) / room));
  labels.forEach((label, i) => {
    if (i % every === 0) box.svg.append(shape("text", { x: box.left - 6, y: place(i) + 4, "text-anchor": "end" }, String(label)));
  });
}

function drawDensity(q) {
  const where = byId("density");
  if (!q.curves) return where.replaceChildren();
  const heights = unpacked(q.curves, 1);
  const points = 80;
  const numCurves = heights.length / points;
  const [low, high] = q.range;
  const hasCombined = q.mean !== undefined;
  const box = chart(where, 260, `Densities of ${q.label}: shards in grey, combined in blue`, [10, 12, 24, 12],
    numCurves > 1 ? "densities: single shards grey, combined blue" : "density of the combined draws; the page would be too large with those of all shards");
  const x = across(box, low, high);
  const y = (share) => box.bottom - share * (box.bottom - box.top);
  const line = (k) => Array.from({ length: points }, (_, i) =>
    `${i ? "L" : "M"}${x(low + ((high - low) * i) / (points - 1)).toFixed(1)},${y(heights[k * points + i]).toFixed(1)}`).join("");
  const first = hasCombined ? 1 : 0;
  for (let k = first; k < numCurves; k++) {
    const shard = data.shards[k - first];
    const far = shard && shard.where === q.label && Math.abs(shard.away) > data.farLimit;
    box.svg.append(withTip(shape("path", { class: far ? "far" : "shard", d: line(k), "stroke-width": far ? 1.5 : 0.8, fill: "none" }), `shard ${shard?.shard}`));
  }
  if (hasCombined) {
    box.svg.append(shape("path", { class: "band", d: `${line(0)}L${x(high)},${y(0)}L${x(low)},${y(0)}Z` }));
    box.svg.append(withTip(shape("path", { class: "combined", d: line(0) }), "combined"));
  }
}

function drawForest(q) {
  const where = byId("forest");
  if (!q.quantiles) return where.replaceChildren();
  const [low, high] = q.forest;
  const parts = unpacked(q.quantiles, 2).map((share) => low + share * (high - low));
  const size = data.interval.length;
  const num = parts.length / size;
  const step = Math.min(18, Math.max(2, 700 / num));
  const caption = "intervals of each shard: 5–95 %, thicker 25–75 %; the band is the combined one" + (q.weights ? "; at the right its weight, times the number of shards" : "");
  const box = chart(where, 16 + num * step + 26, `Intervals of ${q.label} by shard`, [8, q.weights ? 44 : 12, 24, 40], caption);
  const y = (k) => box.top + (k + 0.5) * step;
  const x = across(box, low, high);
  if (q.mean !== undefined) {
    box.svg.append(shape("rect", { class: "band", x: x(q.low), width: Math.max(1, x(q.high) - x(q.low)), y: box.top, height: box.bottom - box.top }));
    box.svg.append(withTip(shape("line", { class: "combined", x1: x(q.median), x2: x(q.median), y1: box.top, y2: box.bottom }), `combined median ${shown(q.median, q.sd)}`));
  }
  names(box, data.shards.map((each) => each.shard), y, num * step);
  for (let k = 0; k < num; k++) {
    const shard = data.shards[k];
    const [a, b, c, d, e] = parts.slice(size * k, size * (k + 1));
    const far = shard?.where === q.label && Math.abs(shard.away) > data.farLimit;
    const kind = far ? "far" : "shard";
    const group = withTip(shape("g", {}), `shard ${shard?.shard}: median ${shown(c, q.sd)}, 5–95 % ${shown(a, q.sd)} to ${shown(e, q.sd)}`);
    group.append(shape("line", { class: kind, x1: x(a), x2: x(e), y1: y(k), y2: y(k), "stroke-width": Math.min(1.2, step / 2) }));
    group.append(shape("line", { class: kind, x1: x(b), x2: x(d), y1: y(k), y2: y(k), "stroke-width": Math.min(4, step / 1.5) }));
    group.append(shape("circle", { class: far ? "far" : "dot", cx: x(c), cy: y(k), r: Math.min(3, step / 2) }));
    box.svg.append(group);
    if (q.weights && step >= 11) box.svg.append(shape("text", { x: box.right + 8, y: y(k) + 4 }, (q.weights[k] * num).toFixed(2)));
  }
}

function drawAway() {
  const where = byId("away");
  if (data.farLimit === null) {
    byId("farness").textContent = data.labelled
      ? "Exchangeable components may have another order in every shard, so that their draws cannot be compared one by one; labels are matched before shards are combined."
      : "There is but one shard, or no draws of single shards are kept: nothing can disagree.";
    return;
  }
  const far = data.shards.filter((each) => Math.abs(each.away) > data.farLimit);
  byId("farness").textContent =
    `How far each shard's mean is from the others', in what their spreads explain, for the number in which it is farthest. Beyond ${data.farLimit.toFixed(1)} ` +
    (far.length ? `it is no chance: shard${far.length > 1 ? "s" : ""} ${far.map((each) => each.shard).slice(0, 20).join(", ")}${far.length > 20 ? " …" : ""}.` : "it would be no chance; no shard is.") +
    " Choose a shard to see that number.";
  const step = Math.min(18, Math.max(5, 700 / data.shards.length));
  const most = Math.max(data.farLimit * 1.15, ...data.shards.map((each) => Math.abs(each.away)));
  const box = chart(where, data.shards.length * step + 52, "Distance of each shard from the others", [6, 16, 42, 40]);
  const x = across(box, 0, most, "distance from the other shards");
  const y = (k) => box.top + (k + 0.5) * step;
  names(box, data.shards.map((each) => each.shard), y, data.shards.length * step);
  data.shards.forEach((shard, k) => {
    const size = Math.abs(shard.away);
    const isFar = size > data.farLimit;
    const text = `shard ${shard.shard}: ${size.toFixed(1)}, ${shard.where}`;
    const button = withTip(shape("g", { role: "button", tabindex: 0, "aria-label": text }), text);
    const hit = shape("rect", { x: box.left, width: box.right - box.left, y: y(k) - step / 2, height: step, fill: "transparent" });
    button.append(hit, shape("line", { class: isFar ? "far" : "shard", x1: x(0), x2: x(size), y1: y(k), y2: y(k) }));
    button.append(shape("circle", { class: isFar ? "far" : "dot", cx: x(size), cy: y(k), r: Math.min(5, step / 2.2) }));
    const go = () => choose(detailed.find((each) => each.label === shard.where), true);
    button.addEventListener("click", go);
    button.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); }
    });
    box.svg.append(button);
  });
  box.svg.append(shape("line", { class: "limit", x1: x(data.farLimit), x2: x(data.farLimit), y1: box.top, y2: box.bottom }));
}

function drawObjective() {
  const trace = data.objective;
  if (!trace) {
    byId("climb").textContent = "The combiner did not optimise an objective.";
    return;
  }
  const gained = -trace.gain[0];
  byId("climb").textContent = `The objective by iteration, less its last value (${trace.last}): ${shown(gained, gained)} nats were gained over where it started. The band is two Monte Carlo errors.`;
  const lows = trace.gain.map((value, i) => value - 2 * (trace.error[i] ?? 0));
  const highs = trace.gain.map((value, i) => value + 2 * (trace.error[i] ?? 0));
  const low = Math.min(...lows);
  const high = Math.max(...highs);
  const box = chart(byId("trace"), 240, "Objective by iteration", [10, 16, 42, 56]);
  const x = across(box, 0, Math.max(1, trace.steps.at(-1)), "iteration", 1);
  const y = (value) => box.bottom - ((value - low) / (high - low || 1)) * (box.bottom - box.top);
  for (const [at, text] of ticks(low, high, 5)) {
    box.svg.append(shape("line", { class: "axis", x1: box.left, x2: box.right, y1: y(at), y2: y(at) }));
    box.svg.append(shape("text", { x: box.left - 6, y: y(at) + 4, "text-anchor": "end" }, text));
  }
  const path = (values) => values.map((value, i) => `${x(trace.steps[i]).toFixed(1)},${y(value).toFixed(1)}`);
  box.svg.append(shape("path", { class: "band", d: `M${path(highs).join("L")}L${path(lows).reverse().join("L")}Z` }));
  box.svg.append(shape("path", { class: "combined", d: `M${path(trace.gain).join("L")}` }));
}

function drawStages() {
  const where = byId("stages");
  if (!data.stages.length) return where.replaceChildren();
  const most = Math.max(...data.stages.map(([, seconds]) => seconds));
  const box = chart(where, data.stages.length * 24 + 30, "Seconds by stage", [4, 60, 24, 72], "seconds by stage");
  const x = across(box, 0, most || 1);
  data.stages.forEach(([name, seconds], k) => {
    const y = box.top + k * 24;
    box.svg.append(shape("text", { x: box.left - 8, y: y + 15, "text-anchor": "end" }, name));
    box.svg.append(shape("rect", { class: "bar", x: box.left, width: Math.max(1, x(seconds) - box.left), y: y + 3, height: 16 }));
    box.svg.append(shape("text", { x: x(seconds) + 6, y: y + 15 }, `${seconds.toFixed(1)} s`));
  });
}

function drawGantt() {
  const where = byId("gantt");
  const timed = data.shards.filter((each) => each.spans);
  if (!timed.length) return where.replaceChildren(element("p", { class: "note" }, "When each shard was sampled is not known of this result."));
  const step = Math.min(16, Math.max(3, 700 / timed.length));
  const end = Math.max(...timed.flatMap((each) => each.spans.map((span) => span[1])));
  const box = chart(where, timed.length * step + 48, "When each shard was sampled", [4, 16, 42, 40], "when each chain of each shard was sampled");
  const x = across(box, 0, end || 1, "seconds");
  names(box, timed.map((each) => each.shard), (k) => box.top + (k + 0.5) * step, timed.length * step);
  timed.forEach((shard, k) => shard.spans.forEach(([from, to], chain) => {
    const height = (step * 0.8) / shard.spans.length;
    const bar = shape("rect", { class: "bar", x: x(from), width: Math.max(1, x(to) - x(from)), y: box.top + k * step + step * 0.1 + chain * height, height });
    box.svg.append(withTip(bar, `shard ${shard.shard}, chain ${chain}: ${from.toFixed(1)} to ${to.toFixed(1)} s`));
  }));
}

// What the reader does.

function choose(quantity, scroll) {
  if (!quantity) return;
  chosen = quantity;
  byId("choice").value = String(detailed.indexOf(quantity));
  drawChosen();
  mark();
  if (scroll) {
    byId("against").scrollIntoView();
    byId("choice").focus({ preventScroll: true });
  }
}

function drawChosen() {
  if (!chosen) {
    byId("about").textContent = "There are no draws to show.";
    return;
  }
  const q = chosen;
  byId("about").textContent = q.mean === undefined ? `${q.label}: not combined yet.` :
    `${q.label}: ${shown(q.mean, q.sd)} ± ${shown(q.sd, q.sd)}, 5–95 % from ${shown(q.low, q.sd)} to ${shown(q.high, q.sd)}` +
    (q.off === undefined ? "." : `; mean off by ${off(q.off, q.offSe, 1, 3)} sd, sd off by ${off(q.sdOff, q.sdOffSe, 100, 1)} %, by its own estimate.`);
  drawDensity(q);
  drawForest(q);
}

function draw() {
  drawChosen();
  drawAway();
  drawObjective();
  drawStages();
  drawGantt();
}

byId("find").addEventListener("input", find);
byId("choice").append(...detailed.map((each, i) => element("option", { value: i }, each.label)));
byId("choice").addEventListener("change", (event) => choose(detailed[Number(event.target.value)]));
const move = (by) => choose(detailed[(detailed.indexOf(chosen) + by + detailed.length) % detailed.length]);
byId("previous").addEventListener("click", () => move(-1));
byId("next").addEventListener("click", () => move(1));
if (data.numDetailed < data.quantities.length)
  byId("about").after(element("p", { class: "note" }, `Charts are there for the ${data.numDetailed} most doubtful numbers of ${data.quantities.length}, to keep the page small.`));

const shardColumns = [
  { title: "shard", isName: true, key: (s) => s.shard, text: (s) => String(s.shard) },
  { title: "rows", name: "rows", digits: 0 },
  { title: "largest R-hat", name: "rhat", digits: 3, far: (s) => s.rhat > 1.05 },
  { title: "least effective draws", name: "ess", digits: 0, far: (s) => s.ess < 100 },
  { title: "divergences", name: "divergences", digits: 0, far: (s) => s.divergences > 0 },
  { title: "acceptance", name: "acceptance", digits: 2 },
  { title: "farthest in", name: "where" },
  { title: "by", name: "away", digits: 1, far: (s) => Math.abs(s.away) > data.farLimit },
  { title: "seconds", name: "seconds", digits: 1 },
].filter((column) => !column.name || data.shards.some((shard) => shard[column.name] !== undefined));
for (const column of shardColumns) {
  column.key ??= (shard) => shard[column.name];
  column.text ??= (shard) => {
    const value = shard[column.name];
    if (value === null || value === undefined) return "–";
    return column.digits === undefined ? value : value.toFixed(column.digits).replace("-", "−");
  };
}
table(byId("shards"), shardColumns, data.shards);

find();
choose(chosen);
draw();
let drawnAt = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== drawnAt) { drawnAt = window.innerWidth; draw(); }
});
window.addEventListener("beforeprint", draw);
window.addEventListener("afterprint", draw);
