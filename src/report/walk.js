// SPDX-License-Identifier: Apache-2.0
// The walk of tiles, drawn and stepped through: a square for each pair of a query tile and a key tile, and a ledger of
// m and l after each tile that the chosen row's query tile visits.
"use strict";

const element = (tag, attributes = {}, text = null) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
};

const shape = (tag, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

const figureOf = (value) => (typeof value === "number" ? Number(value.toPrecision(5)).toString() : value);

/** Columns that a narrow screen has no room for. */
const beside = new Set(["seen", "tile's max"]);

const rowName = (row) => `batch ${row.batch}, head ${row.head}, query ${row.query}`;

/** A choice among labels that calls `chosen` with the index. */
function selector(name, labels, chosen) {
  const label = element("label", {}, name);
  const select = element("select", { "aria-label": name });
  labels.forEach((text, at) => select.append(element("option", { value: at }, text)));
  select.addEventListener("change", () => chosen(Number(select.value)));
  label.append(select);
  return label;
}

function drawGrid(walk, row, step) {
  const [rows, columns] = [walk.query_tiles, walk.key_tiles];
  const side = 20;
  const svg = shape("svg", { viewBox: `-1 -1 ${columns * side + 2} ${rows * side + 2}`, role: "img" });
  svg.style.maxWidth = Math.min(columns * 44, 560) + "px";
  const seen = new Set(row.steps.slice(0, step).map((visit) => visit.tile));
  const current = step > 0 ? row.steps[step - 1].tile : -1;
  row.grid.forEach((letters, y) =>
    [...letters].forEach((letter, x) => {
      const fill = { s: "skip", e: "edge", f: "full" }[letter];
      const mine = y === row.query_tile;
      const done = mine && seen.has(x);
      svg.append(shape("rect", {
        x: x * side + 1, y: y * side + 1, width: side - 2, height: side - 2, rx: 2, style: `fill: var(--${fill})`,
        opacity: mine ? (done || letter === "s" ? 1 : 0.55) : 0.45,
      }));
      if (mine && x === current)
        svg.append(shape("rect", { x: x * side, y: y * side, width: side, height: side, rx: 2,
          style: "fill: none; stroke: var(--ink); stroke-width: 2" }));
    }));
  svg.append(shape("rect", { x: 0, y: row.query_tile * side, width: columns * side, height: side,
    style: "fill: none; stroke: var(--faint); stroke-width: 1" }));
  return svg;
}

function ledger(row, step) {
  const table = element("table");
  const head = element("tr");
  const names = ["keys", "class", "seen", "tile's max", "rescale", "m", "l"];
  for (const name of names) head.append(element("th", { class: beside.has(name) ? "beside" : "" }, name));
  table.append(head);
  row.steps.forEach((visit, at) => {
    const line = element("tr", { class: at + 1 === step ? "now" : at + 1 > step ? "later" : "" });
    const cells = [`${visit.first}–${visit.first + visit.keys - 1}`, visit.class, visit.seen, figureOf(visit.tile_m),
      figureOf(visit.rescale), figureOf(visit.m), figureOf(visit.l)];
    cells.forEach((cell, column) =>
      line.append(element("td", { class: beside.has(names[column]) ? "beside" : "" },
        at + 1 > step && column > 0 ? "·" : cell)));
    table.append(line);
  });
  return table;
}

function showWalk(figure, data) {
  const [controls, drawing, book] = [".controls", ".drawing", ".ledger"].map((place) => figure.querySelector(place));
  const state = { walk: 0, row: 0, step: 0 };
  const steps = () => data.walks[state.walk].rows[state.row].steps.length;
  const button = (text, move) => {
    const made = element("button", { type: "button" }, text);
    made.addEventListener("click", () => { state.step = move(); draw(); });
    return made;
  };
  const back = button("← Back", () => state.step - 1);
  const on = button("Step →", () => state.step + 1);
  const all = button("All", steps);
  const draw = () => {
    state.step = Math.max(0, Math.min(state.step, steps()));
    const walk = data.walks[state.walk];
    const row = walk.rows[state.row];
    back.disabled = state.step === 0;
    on.disabled = all.disabled = state.step === steps();
    const key = element("div", { class: "key" });
    for (const [kind, about] of [["skip", "never visited"], ["edge", "tests its pairs"], ["full", "needs no test"]])
      key.append(element("span", { style: `--swatch: var(--${kind})` }, `${kind}: ${about}`));
    drawing.replaceChildren(
      element("p", {}, `Across: ${walk.key_tiles} key tiles. Down: ${walk.query_tiles} query tiles.`),
      drawGrid(walk, row, state.step), key);
    const last = row.steps[state.step - 1];
    const now = last ? `m ${figureOf(last.m)}, l ${figureOf(last.l)}` : "m -inf, l 0: nothing seen yet";
    const end = state.step === steps() ? `; lse = m + ln l = ${figureOf(data.rows[state.row].lse)}` : "";
    book.replaceChildren(element("p", { class: "now" }, `After ${state.step} of ${steps()} tiles: ${now}${end}`),
      ledger(row, state.step));
  };
  const choose = (field) => (at) => { state[field] = at; state.step = steps(); draw(); };
  controls.append(
    selector("Row", data.rows.map(rowName), choose("row")),
    selector("Tiles", data.walks.map((walk) => `${walk.tile.queries} × ${walk.tile.keys}, ${walk.about}`), choose("walk")),
    back, on, all);
  state.step = steps();
  draw();
}
