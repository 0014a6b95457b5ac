// SPDX-License-Identifier: Apache-2.0
// Puts the figures into their places. Text from the data is set as text, never as markup.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const figure = (name) => document.getElementById(name);
  const say = (name, text) => { figure(name).querySelector("figcaption p").textContent = text; };

  document.title = "fresnel: " + data.problem;
  figure("problem").textContent = data.problem;
  const { o, lse } = data.check.outputs;
  const shares = `o ${percent(o.max_share)}` + (lse ? `, lse ${percent(lse.max_share)}` : "") + " of the budget";
  const facts = [["check", (data.check.ok ? "RIGHT: " : "WRONG: ") + shares, data.check.ok ? "good" : "bad"],
    ["kernel", `${data.kernel} (${data.isa}, tile ${data.tile.queries} × ${data.tile.keys}, ${data.lanes} lanes)`],
    ["data", data.source], ["machine", `${data.machine}, ${data.threads} threads`]];
  for (const [name, text, kind] of facts) {
    const pair = element("div");
    pair.append(element("dt", {}, name), element("dd", kind ? { class: kind } : {}, text));
    figure("facts").append(pair);
  }
  document.querySelector("footer").textContent = `fresnel ${data.version}`;

  showWalk(figure("walk"), data.walk);
  showAttention(figure("attention"), data.attention);

  const last = (kind) => data.traffic.filter((row) => row.kind === kind).at(-1);
  const [unfused, fused] = ["unfused", "fused"].map(last);
  say("traffic", `Requests of one head of width ${fused.d} on an emulated machine of 16 KiB workgroup memory. At N ` +
    `${fused.n.toLocaleString("en")} the unfused kernels ask for ` +
    `${Number((unfused.global_bytes / fused.global_bytes).toPrecision(3))} times what the fused one does, and for ` +
    `${engineering(unfused.extra_memory_bytes, "B")} to keep scores in; the fused one keeps none.`);
  say("budget", `Every value of the result against the oracle: ${o.count.toLocaleString("en")} values of o, ` +
    `${o.mismatches.toLocaleString("en")} beyond the budget; the largest share is ${percent(o.max_share)}.`);
  const charts = [["traffic", () => trafficChart(data.traffic)], ["budget", () => budgetChart(data.check.outputs)]];
  if (data.roofline) {
    say("roofline", "Every kernel that takes this problem, judged and timed. The roofs are what this machine was " +
      `measured to do ${data.roofline.measured}; bytes are each input once and each output once.`);
    charts.push(["roofline", () => rooflineChart(data.roofline)]);
  }
  if (data.times) {
    say("times", data.times.recorded ? `Medians as the record has them, up to ${data.times.problem}.`
      : `Median of short runs, each judged first: ${data.times.problem} and longer.`);
    charts.push(["times", () => timesChart(data.times)]);
  }
  for (const name of ["roofline", "times"]) figure(name).hidden = !data[name];

  let drawn = [];
  const draw = () => {
    drawn.forEach((chart) => chart.destroy());
    drawn = charts.map(([name, make]) => new Chart(figure(name).querySelector("canvas"), make()));
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
