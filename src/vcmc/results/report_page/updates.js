// The section on updates: estimates of the selected parameter after each, and a table of updates.

const NORMAL_95 = 1.645; // sds between the mean and the 95 % quantile of a normal distribution
const VERDICTS = ["good", "doubtful", "poor"];

function valueAxis(box, low, high) {
  const y = (value) => box.bottom - ((value - low) / (high - low || 1)) * (box.bottom - box.top);
  for (const [value, text] of ticks(low, high, 5)) {
    const position = { x1: box.left, x2: box.right, y1: y(value), y2: y(value) };
    const label = { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" };
    box.svg.append(shape("line", { class: "axis", ...position }), shape("text", label, text));
  }
  return y;
}

function updateText(update, mean, sd) {
  const estimate = mean === null || sd === null ? "no estimate"
    : `${format(mean, sd)} ± ${format(sd, sd)}`;
  const rows = update.rows < 0 ? `${thousands(-update.rows)} rows deleted`
    : `${thousands(update.rows)} rows`;
  return `${update.name}: ${estimate}; ${rows}, ${update.verdict}`;
}

function drawUpdates(quantity) {
  const container = byId("update-chart");
  const estimates = data.updates?.estimates[quantity.label];
  if (!estimates) {
    const note = `There are no estimates of ${quantity.label} by update.`;
    return container.replaceChildren(element("p", { class: "note" }, note));
  }
  const [means, sds] = estimates;
  const { updates } = data.updates;
  const ends = means.flatMap((mean, k) =>
    mean === null || sds[k] === null ? [] : [mean - NORMAL_95 * sds[k], mean + NORMAL_95 * sds[k]]);
  if (!ends.length) return container.replaceChildren();
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const space = 0.05 * (high - low || 1);
  const caption = `${quantity.label} after each update: mean, and mean ± ${NORMAL_95} sd (5–95 % if ` +
    "normal). Verdicts: blue good, amber doubtful, red poor, grey unknown.";
  const box = chart(container, 280, `${quantity.label} by update`, [10, 16, 42, 64], caption);
  const y = valueAxis(box, low - space, high + space);
  const step = (box.right - box.left) / updates.length;
  const x = (k) => box.left + (k + 0.5) * step;
  const longest = Math.max(...updates.map((update) => Math.min(12, update.name.length)));
  const stride = Math.max(1, Math.ceil((7.5 * longest + 10) / step));
  const known = updates.flatMap((_, k) => (means[k] === null ? [] : [k]));
  const path = "M" + known.map((k) => `${x(k).toFixed(1)},${y(means[k]).toFixed(1)}`).join("L");
  box.svg.append(
    shape("path", { class: "faded", d: path }),
    shape("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    shape("text", { x: box.right, y: box.bottom + 33, "text-anchor": "end" }, "update"),
  );
  updates.forEach((update, k) => {
    if (k % stride === 0) {
      const name = update.name.length > 12 ? `${update.name.slice(0, 11)}…` : update.name;
      const position = { x: x(k), y: box.bottom + 17, "text-anchor": "middle" };
      box.svg.append(shape("text", position, name));
    }
    if (means[k] === null || sds[k] === null) return;
    const level = VERDICTS.includes(update.verdict) ? update.verdict : "unknown";
    const [from, to] = [-1, 1].map((sign) => y(means[k] + sign * NORMAL_95 * sds[k]));
    const mark = withTooltip(shape("g", { class: `estimate ${level}` }),
      updateText(update, means[k], sds[k]));
    const radius = Math.min(4, Math.max(1.5, step / 3));
    mark.append(
      shape("line", { x1: x(k), x2: x(k), y1: from, y2: to }),
      shape("circle", { cx: x(k), cy: y(means[k]), r: radius }),
    );
    box.svg.append(mark);
  });
}

function startUpdates() {
  byId("updates").hidden = byId("updates-link").hidden = !data.updates;
  if (!data.updates) return;
  const columns = [
    {
      title: "update", isName: true, key: (update) => data.updates.updates.indexOf(update),
      text: (update) => update.name,
    },
    {
      title: "rows", key: (update) => update.rows,
      text: (update) => (update.rows < 0 ? "−" : "") + thousands(Math.abs(update.rows)),
    },
    { title: "shards", key: (update) => update.shards, text: (update) => String(update.shards) },
    {
      title: "verdict", key: (update) => update.verdict, text: (update) => update.verdict,
      isFlagged: (update) => update.verdict === "poor",
    },
    {
      title: "time", key: (update) => update.time,
      text: (update) => update.time.slice(0, 16).replace("T", " "),
    },
  ];
  table(byId("update-table"), columns, data.updates.updates);
}

startUpdates();
