// SPDX-License-Identifier: Apache-2.0
// Attention of one query over its keys: every key shaded by its weight, as text where the case has tokens, and the
// largest weights as bars.
"use strict";

const largestShown = 10;

const weightOf = (key) => (typeof key[1] === "number" ? key[1] : 0);

/** White space made visible where it is all that there is. */
const readable = (token) => (token.trim() === "" ? JSON.stringify(token).slice(1, -1) || "∅" : token);

function showAttention(figure, data) {
  const [controls, keys, largest] = [".controls", ".keys", ".largest"].map((place) => figure.querySelector(place));
  const about = element("p");
  figure.querySelector("figcaption").append(about);
  const draw = (at) => {
    const row = data.rows[at];
    const heaviest = Math.max(Number.MIN_VALUE, ...row.keys.map(weightOf));
    const part = row.keys.length < row.visible ? `the ${row.keys.length} heaviest of ` : "";
    about.textContent = `${rowName(row)}${row.token === null ? "" : " " + JSON.stringify(row.token)} sees ${part}` +
      `${row.visible} keys${row.keys.length > 0 ? `; the strongest colour is the largest weight, ${percent(heaviest)}` : ""}.`;
    keys.classList.toggle("cells", !data.tokens);
    keys.replaceChildren(...row.keys.map((key) => {
      const span = element("span", { title: `key ${key[0]}: ${percent(key[1])}` }, data.tokens ? key[2] : "");
      span.style.background = `rgb(var(--heat) / ${(0.85 * Math.sqrt(weightOf(key) / heaviest)).toFixed(3)})`;
      return span;
    }));
    if (!data.tokens && row.keys.length > 0)
      keys.append(element("p", {}, `A square for each key, from ${row.keys[0][0]} to ${row.keys.at(-1)[0]}.`));
    const order = [...row.keys].sort((one, other) => weightOf(other) - weightOf(one)).slice(0, largestShown);
    largest.replaceChildren(...order.map((key) => {
      const line = element("li");
      const bar = element("span", { class: "bar" });
      bar.style.width = (100 * weightOf(key)).toFixed(2) + "%";
      line.append(element("span", { class: "index" }, key[0]),
        element("span", { class: "name" }, data.tokens ? readable(key[2]) : ""),
        element("span", { class: "share" }, percent(key[1])), bar);
      return line;
    }));
  };
  const label = (row) => rowName(row) + (row.token === null ? "" : " " + JSON.stringify(row.token));
  controls.append(selector("Row", data.rows.map(label), draw));
  draw(0);
}
