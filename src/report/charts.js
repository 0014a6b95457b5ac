// SPDX-License-Identifier: Apache-2.0
// The charts that the library draws: traffic, budget, roofline, time. Each is made anew when light turns to dark.
"use strict";

/** Colours of the style sheet as the page has them now. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

const engineering = (value, unit) => {
  if (typeof value !== "number") return value + " " + unit;
  if (value === 0) return "0 " + unit;
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const [size, prefix] = steps.find(([least]) => Math.abs(value) >= least) ?? steps.at(-1);
  return Number((value / size).toPrecision(3)) + " " + prefix + unit;
};

const percent = (share) => (typeof share !== "number" ? share : Number((share * 100).toPrecision(2)) + "%");

/** A logarithmic axis that labels powers of ten and nothing between. */
const logAxis = (title, unit) => ({
  type: "logarithmic",
  title: { display: true, text: title, color: colour("faint") },
  grid: { color: colour("line") },
  ticks: {
    color: colour("faint"),
    autoSkip: true,
    maxRotation: 0,
    callback: (value) => {
      const power = Math.log10(value);
      return Math.abs(power - Math.round(power)) < 1e-6 ? engineering(value, unit) : null;
    },
  },
});

const plainAxis = (title) => ({
  title: { display: title !== "", text: title, color: colour("faint") },
  grid: { color: colour("line") },
  ticks: { color: colour("faint"), maxRotation: 0 },
});

const options = (x, y, label) => ({
  animation: false,
  responsive: true,
  maintainAspectRatio: false,
  scales: { x, y },
  plugins: {
    legend: { labels: { color: colour("ink"), boxWidth: 14 } },
    tooltip: { callbacks: { label } },
  },
});

const palette = () => ["first", "second", "third", "fourth"].map(colour);

function trafficChart(rows) {
  const lengths = [...new Set(rows.map((row) => row.n))];
  const set = (kind, shade) => ({
    label: kind,
    data: rows.filter((row) => row.kind === kind).map((row) => row.global_bytes),
    backgroundColor: colour(shade),
  });
  return {
    type: "bar",
    data: { labels: lengths.map((n) => n.toLocaleString("en")), datasets: [set("unfused", "second"), set("fused", "first")] },
    options: options(plainAxis("N, queries and keys"), logAxis("bytes asked of memory", "B"),
      (item) => item.dataset.label + ": " + engineering(item.raw, "B")),
  };
}

function budgetChart(outputs) {
  const [least, counts] = [-15, outputs.o.by_octave.length];
  const labels = Array.from({ length: counts }, (_, at) =>
    at === 0 ? "less" : at === counts - 1 ? "over" : percent(2 ** (least + at - 1)));
  const datasets = Object.entries(outputs).map(([name, output], at) => ({
    label: name,
    data: ["exact", ...labels].map((_, bin) =>
      (100 * (bin === 0 ? output.exact : output.by_octave[bin - 1])) / Math.max(output.count, 1)),
    backgroundColor: palette()[at],
  }));
  return {
    type: "bar",
    data: { labels: ["exact", ...labels], datasets },
    options: options(plainAxis("share of the budget used, at least"), plainAxis("% of the values"),
      (item) => item.dataset.label + ": " + Number(item.raw.toPrecision(3)) + "% of the values"),
  };
}

function rooflineChart(roofline) {
  const points = roofline.points.filter((point) => point.ok && typeof point.intensity === "number");
  const xs = points.map((point) => point.intensity);
  const low = Math.min(0.25, ...xs) / 2;
  const high = Math.max(64, ...xs) * 4;
  const steps = Array.from({ length: 65 }, (_, at) => low * (high / low) ** (at / 64));
  const roof = (label, bytes, flops, shade, dash) => ({
    label, showLine: true, pointRadius: 0, borderColor: colour(shade), borderWidth: 2, borderDash: dash,
    data: steps.map((x) => ({ x, y: Math.min(flops, x * bytes) })),
  });
  const datasets = points.map((point, at) => ({
    label: point.kernel, data: [{ x: point.intensity, y: point.flops }],
    backgroundColor: palette()[at % 4], borderColor: palette()[at % 4], pointRadius: 6, pointHoverRadius: 8,
  }));
  if (roofline.cache_bytes && roofline.flops)
    datasets.push(roof("L2 roof", roofline.cache_bytes, roofline.flops, "third", [4, 4]));
  if (roofline.memory_bytes && roofline.flops)
    datasets.push(roof("memory roof", roofline.memory_bytes, roofline.flops, "faint", []));
  if (roofline.memory_bytes && roofline.tile_flops)
    datasets.push(roof("tile unit", roofline.memory_bytes, roofline.tile_flops, "faint", [8, 4]));
  const chart = {
    type: "scatter",
    data: { datasets },
    options: options(logAxis("operations for each byte of memory", ""), logAxis("operations each second", "op/s"),
      (item) => item.dataset.label + ": " + engineering(item.raw.y, "op/s")),
  };
  chart.options.scales.x.min = low;
  chart.options.scales.x.max = high;
  return chart;
}

function timesChart(times) {
  const lengths = [...new Set(times.series.flatMap((line) => line.points.map((point) => point.s)))];
  return {
    type: "scatter",
    data: {
      datasets: times.series.map((line, at) => ({
        label: line.kernel, showLine: true, borderColor: palette()[at % 4], backgroundColor: palette()[at % 4],
        data: line.points.map((point) => ({ x: point.s, y: point.seconds })),
      })),
    },
    options: options(
      { ...logAxis("S, keys of a sequence", ""), min: Math.min(...lengths), max: Math.max(...lengths),
        ticks: { color: colour("faint"), maxRotation: 0, callback: (value) => value.toLocaleString("en") },
        afterBuildTicks: (axis) => { axis.ticks = lengths.map((value) => ({ value })); } },
      logAxis("median time", "s"),
      (item) => item.dataset.label + ", S " + item.raw.x + ": " + engineering(item.raw.y, "s")),
  };
}
