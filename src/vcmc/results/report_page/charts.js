// Charts, drawn to the width of their container and again when it changes.

function ticks(low, high, maxTicks, minStep = 0) {
  const rough = (high - low) / Math.max(1, maxTicks);
  const power = 10 ** Math.floor(Math.log10(rough));
  const atLeast = Math.max(rough, minStep);
  const round = [1, 2, 5, 10].map((factor) => factor * power);
  const step = round.find((candidate) => candidate >= atLeast) ?? atLeast;
  const power10 = (value) => Math.floor(Math.log10(value) + 1e-9);
  const largest = Math.max(Math.abs(low), Math.abs(high));
  // labels of seven characters or more would overlap, or leave the page
  const isLong = largest >= 1e5 || step < 1e-4;
  const exponential = (value) =>
    value.toExponential(Math.max(0, power10(Math.abs(value)) - power10(step))).replace("e+", "e");
  const fixed = (value) =>
    value.toFixed(Math.max(0, -power10(step))).replace(/^-0(\.0*)?$/, "0$1");
  const label = (value) =>
    minus(Math.abs(value) < step / 2 ? "0" : isLong ? exponential(value) : fixed(value));
  const values = [];
  const first = Math.ceil(low / step - 1e-9) * step;
  for (let value = first; value <= high + 1e-9 * step; value += step) values.push(value);
  return values.map((value) => [value, label(value)]);
}

// Add an empty chart; return its svg element and the edges of the plot area.
function chart(container, height, label, margins, caption) {
  const width = Math.max(260, container.clientWidth || 640);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label,
  });
  container.replaceChildren(svg, ...(caption ? [element("figcaption", {}, caption)] : []));
  const [top, right, bottom, left] = margins;
  return { svg, left, top, right: width - right, bottom: height - bottom };
}

// Add a horizontal axis; return the map from values to positions.
function horizontalAxis(box, low, high, title, minStep, spacing = 75) {
  const { svg, left, right, bottom } = box;
  const x = (value) => left + ((value - low) / (high - low || 1)) * (right - left);
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  for (const [value, text] of ticks(low, high, (right - left) / spacing, minStep)) {
    const position = { x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4 };
    svg.append(shape("line", { class: "axis", ...position }));
    svg.append(shape("text", { x: x(value), y: bottom + 17, "text-anchor": "middle" }, text));
  }
  if (title) svg.append(shape("text", { x: right, y: bottom + 33, "text-anchor": "end" }, title));
  return x;
}

// Label the lines of a chart, or every n-th of them if they are close.
function lineLabels(box, labels, y, height) {
  const stride = Math.max(1, Math.ceil((14 * labels.length) / height));
  labels.forEach((label, i) => {
    if (i % stride) return;
    const position = { x: box.left - 6, y: y(i) + 4, "text-anchor": "end" };
    box.svg.append(shape("text", position, String(label)));
  });
}

const isOutlier = (shard) => Math.abs(shard.distance) > data.outlierThreshold;
const isOutlierIn = (shard, quantity) => shard?.distantIn === quantity.label && isOutlier(shard);

function drawDensity(quantity) {
  const container = byId("density");
  if (!quantity.curves) return container.replaceChildren();
  const heights = unpack(quantity.curves, 1);
  const numPoints = data.numGridPoints;
  const numCurves = heights.length / numPoints;
  const [low, high] = quantity.range;
  const first = quantity.mean === undefined ? 0 : 1;
  const caption = numCurves > 1 ? "densities: shards grey, combined blue" :
    "density of the combined draws (those of the shards would make the page too large)";
  const label = `Densities of ${quantity.label}: shards in grey, combined in blue`;
  const box = chart(container, 260, label, [10, 12, 24, 12], caption);
  const x = horizontalAxis(box, low, high);
  const y = (height) => box.bottom - height * (box.bottom - box.top);
  const point = (curve, i) => [
    x(low + ((high - low) * i) / (numPoints - 1)).toFixed(1),
    y(heights[curve * numPoints + i]).toFixed(1),
  ];
  const path = (curve) =>
    "M" + Array.from({ length: numPoints }, (_, i) => point(curve, i).join(",")).join("L");
  for (let curve = first; curve < numCurves; curve++) {
    const shard = data.shards[curve - first];
    const style = isOutlierIn(shard, quantity)
      ? { class: "outlier", "stroke-width": 1.5 } : { class: "shard", "stroke-width": 0.8 };
    const line = shape("path", { ...style, d: path(curve), fill: "none" });
    box.svg.append(withTooltip(line, `shard ${shard?.shard}`));
  }
  if (first) {
    const area = `${path(0)}L${x(high)},${y(0)}L${x(low)},${y(0)}Z`;
    box.svg.append(shape("path", { class: "band", d: area }));
    box.svg.append(withTooltip(shape("path", { class: "combined", d: path(0) }), "combined"));
  }
}

function drawForest(quantity) {
  const container = byId("forest");
  if (!quantity.quantiles) return container.replaceChildren();
  const [low, high] = quantity.forest;
  const values = unpack(quantity.quantiles, 2).map((fraction) => low + fraction * (high - low));
  const numLevels = data.intervalLevels.length;
  const numShards = values.length / numLevels;
  const step = Math.min(18, Math.max(2, 700 / numShards));
  const caption = "intervals of the shards: 5–95 %, thicker 25–75 %; band: the combined 5–95 %" +
    (quantity.weights ? "; right: weight × number of shards" : "");
  const margins = [8, quantity.weights ? 44 : 12, 24, 40];
  const label = `Intervals of ${quantity.label} by shard`;
  const box = chart(container, 16 + numShards * step + 26, label, margins, caption);
  const y = (shard) => box.top + (shard + 0.5) * step;
  const x = horizontalAxis(box, low, high);
  if (quantity.mean !== undefined) {
    const width = Math.max(1, x(quantity.high) - x(quantity.low));
    const vertical = { y: box.top, height: box.bottom - box.top };
    box.svg.append(shape("rect", { class: "band", x: x(quantity.low), width, ...vertical }));
    const at = x(quantity.median);
    const position = { x1: at, x2: at, y1: box.top, y2: box.bottom };
    const median = shape("line", { class: "combined", ...position });
    const text = `combined median ${format(quantity.median, quantity.sd)}`;
    box.svg.append(withTooltip(median, text));
  }
  lineLabels(box, data.shards.map((shard) => shard.shard), y, numShards * step);
  for (let k = 0; k < numShards; k++) {
    const levels = values.slice(numLevels * k, numLevels * (k + 1));
    box.svg.append(interval(levels, data.shards[k], quantity, x, y(k), step));
    if (quantity.weights && step >= 11) {
      const weight = minus((quantity.weights[k] * numShards).toFixed(2));
      box.svg.append(shape("text", { x: box.right + 8, y: y(k) + 4 }, weight));
    }
  }
}

function interval([low, lower, median, upper, high], shard, quantity, x, y, step) {
  const outlier = isOutlierIn(shard, quantity);
  const style = { class: outlier ? "outlier" : "shard", y1: y, y2: y };
  const line = (from, to, width) =>
    shape("line", { ...style, x1: x(from), x2: x(to), "stroke-width": width });
  const text = (value) => format(value, quantity.sd);
  const group = withTooltip(
    shape("g"),
    `shard ${shard?.shard}: median ${text(median)}, 5–95 % ${text(low)} to ${text(high)}`,
  );
  group.append(
    line(low, high, Math.min(1.2, step / 2)),
    line(lower, upper, Math.min(4, step / 1.5)),
    shape("circle", {
      class: outlier ? "outlier" : "dot", cx: x(median), cy: y, r: Math.min(3, step / 2),
    }),
  );
  return group;
}

function distanceNote() {
  if (data.outlierThreshold === null)
    return data.exchangeable
      ? "Exchangeable components may be ordered differently in every shard, so their draws are " +
        "not comparable. Labels are matched before the shards are combined."
      : "Not available: there is only one shard, or the shards' draws are not stored.";
  const outliers = data.shards.filter(isOutlier).map((shard) => shard.shard);
  const listed = outliers.slice(0, 20).join(", ") + (outliers.length > 20 ? " …" : "");
  const threshold = data.outlierThreshold.toFixed(1);
  return "Standardized distance of each shard's mean from that of the other shards, for the " +
    "parameter in which it is largest. " +
    (outliers.length
      ? `Beyond ${threshold} it is not chance: shard${outliers.length > 1 ? "s" : ""} ${listed}.`
      : `No shard is beyond ${threshold}, the limit of chance.`) +
    " Select a shard to see that parameter.";
}

function drawDistances(select) {
  byId("distance-note").textContent = distanceNote();
  if (data.outlierThreshold === null) return;
  const numShards = data.shards.length;
  const step = Math.min(18, Math.max(5, 700 / numShards));
  const sizes = data.shards.map((shard) => Math.abs(shard.distance));
  const largest = Math.max(data.outlierThreshold * 1.15, ...sizes);
  const label = "Distance of each shard from the others";
  const box = chart(byId("distances"), numShards * step + 52, label, [6, 16, 42, 40]);
  const x = horizontalAxis(box, 0, largest, "distance from the other shards");
  const y = (k) => box.top + (k + 0.5) * step;
  lineLabels(box, data.shards.map((shard) => shard.shard), y, numShards * step);
  data.shards.forEach((shard, k) => {
    const outlier = isOutlier(shard);
    const text = `shard ${shard.shard}: ${sizes[k].toFixed(1)}, ${shard.distantIn}`;
    const attributes = { role: "button", tabindex: 0, "aria-label": text };
    const button = withTooltip(shape("g", attributes), text);
    const width = box.right - box.left;
    const area = { x: box.left, width, y: y(k) - step / 2, height: step, fill: "transparent" };
    const line = { x1: x(0), x2: x(sizes[k]), y1: y(k), y2: y(k) };
    const dot = { cx: x(sizes[k]), cy: y(k), r: Math.min(5, step / 2.2) };
    button.append(
      shape("rect", area),
      shape("line", { class: outlier ? "outlier" : "shard", ...line }),
      shape("circle", { class: outlier ? "outlier" : "dot", ...dot }),
    );
    button.addEventListener("click", () => select(shard.distantIn));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      select(shard.distantIn);
    });
    box.svg.append(button);
  });
  const limit = x(data.outlierThreshold);
  const position = { x1: limit, x2: limit, y1: box.top, y2: box.bottom };
  box.svg.append(shape("line", { class: "limit", ...position }));
}

function drawObjective() {
  const trace = data.objective;
  if (!trace) {
    byId("objective-note").textContent = "Not available: the combiner does not optimize.";
    return;
  }
  const gain = -trace.values[0];
  byId("objective-note").textContent =
    `The objective by iteration, minus its last value (${trace.last}). It rose by ` +
    `${format(gain, gain)} nats from the start. The band is ± two Monte Carlo errors.`;
  const bound = (sign) => trace.values.map((value, i) => value + sign * 2 * (trace.errors[i] ?? 0));
  const [lows, highs] = [bound(-1), bound(1)];
  const [low, high] = [Math.min(...lows), Math.max(...highs)];
  const box = chart(byId("trace"), 240, "Objective by iteration", [10, 16, 42, 56]);
  const x = horizontalAxis(box, 0, Math.max(1, trace.iterations.at(-1)), "iteration", 1);
  const y = (value) => box.bottom - ((value - low) / (high - low || 1)) * (box.bottom - box.top);
  for (const [value, text] of ticks(low, high, 5)) {
    const position = { x1: box.left, x2: box.right, y1: y(value), y2: y(value) };
    box.svg.append(shape("line", { class: "axis", ...position }));
    const label = { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" };
    box.svg.append(shape("text", label, text));
  }
  const points = (values) =>
    values.map((value, i) => `${x(trace.iterations[i]).toFixed(1)},${y(value).toFixed(1)}`);
  const band = `M${points(highs).join("L")}L${points(lows).reverse().join("L")}Z`;
  box.svg.append(shape("path", { class: "band", d: band }));
  box.svg.append(shape("path", { class: "combined", d: `M${points(trace.values).join("L")}` }));
}

function duration(seconds) {
  if (seconds < 1000) return `${seconds.toFixed(1)} s`;
  return seconds < 6e4 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function drawStages() {
  const container = byId("stages");
  if (!data.stages.length) return container.replaceChildren();
  const largest = Math.max(...data.stages.map(([, seconds]) => seconds));
  const height = data.stages.length * 24 + 30;
  const box = chart(container, height, "Seconds by stage", [4, 60, 24, 72], "seconds by stage");
  const x = horizontalAxis(box, 0, largest || 1);
  data.stages.forEach(([name, seconds], k) => {
    const y = box.top + k * 24;
    const width = Math.max(1, x(seconds) - box.left);
    box.svg.append(
      shape("text", { x: box.left - 8, y: y + 15, "text-anchor": "end" }, name),
      shape("rect", { class: "bar", x: box.left, width, y: y + 3, height: 16 }),
      shape("text", { x: x(seconds) + 6, y: y + 15 }, duration(seconds)),
    );
  });
}

function drawGantt() {
  const container = byId("gantt");
  const timed = data.shards.filter((shard) => shard.spans);
  if (!timed.length) {
    const note = "The times at which the shards were sampled are not stored.";
    return container.replaceChildren(element("p", { class: "note" }, note));
  }
  const step = Math.min(16, Math.max(3, 700 / timed.length));
  const height = timed.length * step;
  const end = Math.max(...timed.flatMap((shard) => shard.spans.map((span) => span[1])));
  const caption = "sampling times of the chains of each shard";
  const box = chart(container, height + 48, "Sampling times", [4, 16, 42, 40], caption);
  const x = horizontalAxis(box, 0, end || 1, "seconds");
  const middle = (k) => box.top + (k + 0.5) * step;
  lineLabels(box, timed.map((shard) => shard.shard), middle, height);
  timed.forEach((shard, k) => shard.spans.forEach(([from, to], chain) => {
    const height = (step * 0.8) / shard.spans.length;
    const y = box.top + k * step + step * 0.1 + chain * height;
    const width = Math.max(1, x(to) - x(from));
    const bar = shape("rect", { class: "bar", x: x(from), width, y, height });
    const text = `shard ${shard.shard}, chain ${chain}: ${from.toFixed(1)} to ${to.toFixed(1)} s`;
    box.svg.append(withTooltip(bar, text));
  }));
}
