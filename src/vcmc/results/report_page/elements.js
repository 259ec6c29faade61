"use strict";
// Elements of the page, numbers as text, and tables that can be sorted.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function shape(name, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

function withTooltip(node, text) {
  node.append(shape("title", {}, text));
  return node;
}

// Decode base64 to numbers between 0 and 1, of one or two bytes each.
function unpack(text, bytes) {
  const raw = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(raw.buffer);
  const integer = (i) => (bytes === 1 ? view.getUint8(i) : view.getUint16(2 * i, true));
  const largest = bytes === 1 ? 255 : 65535;
  return Array.from({ length: raw.length / bytes }, (_, i) => integer(i) / largest);
}

const minus = (text) => text.replaceAll("-", "−");

// Format a value to two significant digits of a scale, usually the sd.
function format(value, unit) {
  if (value === null || value === undefined) return "–";
  const scale = Math.abs(unit ?? value) || 1;
  const digits = Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(scale))));
  const scientific = Math.abs(value) >= 1e6 || (scale < 1e-6 && value !== 0);
  return minus(scientific ? value.toPrecision(4) : value.toFixed(digits));
}

function formatError(value, standardError, scale, digits) {
  if (value === null || value === undefined) return "–";
  const signed = (value < 0 ? "−" : "+") + Math.abs(scale * value).toFixed(digits);
  return `${signed} ± ${(scale * (standardError ?? 0)).toFixed(digits)}`;
}

// Fill a table whose columns can be sorted; return a function that shows other lines.
// Of many lines, only the first ones in the current order are shown.
function table(container, columns, lines, attributes = () => ({}), maxLines = Infinity) {
  let sortColumn = null;
  let descending = false;
  let current = lines;
  const head = element("tr");
  const body = element("tbody");
  columns.forEach((column) => {
    const button = element("button", { type: "button", onclick: () => sort(column) }, column.title);
    column.head = element("th", { scope: "col" }, button);
    head.append(column.head);
  });
  container.replaceChildren(element("thead", {}, head), body);

  function sort(column) {
    descending = sortColumn === column ? !descending : Boolean(column.descendingFirst);
    sortColumn = column;
    columns.forEach((other) => other.head.removeAttribute("aria-sort"));
    column.head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    fill(current);
  }

  function fill(lines) {
    current = lines;
    const sorted = [...lines];
    if (sortColumn) {
      const key = (line) => sortColumn.key(line) ?? -Infinity;
      const compare = (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0);
      sorted.sort((a, b) => compare(a, b) * (descending ? -1 : 1));
    }
    const cells = (line) => columns.map((column) => cell(column, line));
    body.replaceChildren(
      ...sorted.slice(0, maxLines).map((line) => element("tr", attributes(line), ...cells(line))),
    );
  }

  function cell(column, line) {
    const content = column.text(line);
    if (column.isName) return element("th", { scope: "row" }, content);
    return element("td", column.isFlagged?.(line) ? { class: "flagged" } : {}, content);
  }

  fill(lines);
  return fill;
}
