// Elements and words. Whatever came from outside goes into a page as text and in no other way.

function $(id) {
  return document.getElementById(id);
}

function make(tag, options, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options || {})) {
    if (name === "on") element.addEventListener("click", value);
    else if (name === "class") element.className = value;
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(asNode));
  return element;
}

function asNode(child) {
  return child instanceof Node ? child : String(child);
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Replaces an element's content only if what it shows has changed, so that focus and selection stay.
function show(element, shown, build) {
  const sign = JSON.stringify(shown);
  if (element.dataset.sign === sign) return;
  element.dataset.sign = sign;
  element.replaceChildren(...[build ? build() : String(shown ?? "")].flat().map(asNode));
}

// Makes the body of a table these rows. A row is {key, cells}; a cell is a text, or {of, build, class, head}:
// what it shows, and how that is drawn when it changes.
function fill(table, rows, none) {
  const body = table.tBodies[0];
  const before = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  if (rows.length === 0) rows = [{ key: " none", cells: [{ of: none, class: "empty", span: table.tHead.rows[0].cells.length }] }];
  rows.forEach((row, at) => {
    const key = String(row.key);
    const line = before.get(key) || make("tr", { "data-key": key });
    before.delete(key);
    if (body.rows[at] !== line) body.insertBefore(line, body.rows[at] || null);
    row.cells.forEach((cell, column) => {
      const told = cell !== null && typeof cell === "object" ? cell : { of: cell };
      const tag = told.head ? "th" : "td";
      if (!line.cells[column]) line.append(make(tag, { scope: told.head && "row", class: told.class, colspan: told.span }));
      line.cells[column].hidden = !!told.hidden;
      show(line.cells[column], told.of, told.build);
    });
  });
  before.forEach((line) => line.remove());
}

const NO_VALUE = "–";

function known(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : NO_VALUE;
}

function short(value) {
  if (!known(value)) return NO_VALUE;
  if (value < 10000) return count(value);
  return value < 1e6 ? `${(value / 1e3).toFixed(value < 1e5 ? 1 : 0)}k` : `${(value / 1e6).toFixed(1)}M`;
}

function span(ms) {
  if (!known(ms)) return NO_VALUE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60e3) return `${(ms / 1000).toFixed(ms < 10e3 ? 1 : 0)} s`;
  if (ms < 3600e3) return `${Math.floor(ms / 60e3)} min ${Math.round((ms % 60e3) / 1000)} s`;
  return `${(ms / 3600e3).toFixed(1)} h`;
}

function ago(then, now) {
  const s = Math.max(0, Math.round((now - then) / 1000));
  if (s < 60) return `${s} s ago`;
  return s < 5400 ? `${Math.round(s / 60)} min ago` : `${(s / 3600).toFixed(1)} h ago`;
}

function points(value, sign) {
  if (!known(value)) return NO_VALUE;
  const text = Math.abs(value) < 0.05 ? "0.0" : Math.abs(value).toFixed(1);
  if (text === "0.0") return text;
  return (value < 0 ? "−" : sign ? "+" : "") + text;
}

function gigabytes(bytes) {
  return bytes ? `${(bytes / 1e9).toFixed(bytes < 10e9 ? 1 : 0)} GB` : "";
}

function many(number, one, more) {
  return `${count(number)} ${number === 1 ? one : more || one + "s"}`;
}

function plain(name) {
  return String(name).replaceAll("_", " ");
}

function pill(text, kind, mark) {
  return make("span", { class: `pill ${kind || ""}`, "data-mark": mark || "" }, text);
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}
