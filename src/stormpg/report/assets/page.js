"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const environments = data.environments ?? [];

const { colours: COLOURS, dashes: DASHES } = data.palette; // report/palette.py; line styles are for those who see no colours
const STROKES = { solid: "", dash: "7 4", dashdot: "7 3 2 3", dot: "2 3", longdashdot: "11 3 2 3" };

// ---- Words and numbers

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: "min2" });

function number(value) {
  if (typeof value !== "number") return value ?? "–";
  const size = Math.abs(value);
  const shown = size && (size < 1e-4 || size >= 1e7) ? Number(value.toPrecision(3)).toExponential() : digits.format(value);
  return shown.replaceAll("-", "−").replaceAll(",", "\u202f");
}

const interval = (estimate, low, high) => `${number(estimate)}\u00a0[${number(low)},\u00a0${number(high)}]`;
const percent = (share) => `${number(Math.round(1000 * share) / 10)} %`;
const short = (words) => (words.length > 24 ? `${words.slice(0, 23)}…` : words);

// Plotly interprets some HTML in its texts, so names are escaped.
const safe = (words) => String(words).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// ---- Elements; strings among the children become text, never markup

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function section(id, title, note) {
  const made = element("section", { id, "aria-labelledby": `${id}-heading` }, element("h2", { id: `${id}-heading` }, title));
  if (note) made.append(element("p", { class: "note" }, note));
  document.getElementById("figures").append(made);
  return made;
}

function checkbox(id, name, checked, changed, ...before) {
  const box = element("input", { type: "checkbox", id });
  box.checked = checked;
  box.addEventListener("change", () => changed(box.checked));
  return element("label", { for: id }, box, ...before, name);
}

function select(id, name, options, value, changed) {
  const made = element("select", { id }, ...options.map(([key, words]) => element("option", { value: key }, words)));
  made.value = value;
  made.addEventListener("change", () => changed(made.value));
  return element("label", { for: id }, name, made);
}

/** Checkboxes that choose algorithms, which are the key to colours and dashes too. */
function chooser(id, names, hidden, changed) {
  const boxes = names.map((name, index) =>
    checkbox(`${id}-algorithm-${index}`, name, true, (on) => (on ? hidden.delete(name) : hidden.add(name), changed()), swatch(name)));
  return element("fieldset", {}, element("legend", {}, "Algorithms"), ...boxes);
}

function swatch(name) {
  const { colour, dash } = styles.get(name);
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const drawn = { x1: 0, x2: 28, y1: 5, y2: 5, stroke: colour, "stroke-width": 3, "stroke-dasharray": STROKES[dash] };
  for (const [key, value] of Object.entries(drawn)) line.setAttribute(key, value);
  for (const [key, value] of Object.entries({ width: 28, height: 10, "aria-hidden": "true" })) made.setAttribute(key, value);
  made.append(line);
  return made;
}

// ---- One style for an algorithm on the whole page

const styles = new Map();

function meet(name) {
  const turn = styles.size;
  const lap = Math.floor(turn / COLOURS.length);
  if (!styles.has(name)) styles.set(name, { colour: COLOURS[turn % COLOURS.length], dash: DASHES[(turn + lap) % DASHES.length] });
}

for (const environment of environments) Object.keys(environment.algorithms ?? {}).forEach(meet);
for (const environment of environments) Object.keys(environment.profiles?.algorithms ?? {}).forEach(meet);
for (const pair of environments.flatMap((environment) => environment.improvement ?? [])) [pair.x, pair.y].forEach(meet);
for (const part of data.variance ?? []) Object.keys(part.algorithms ?? {}).forEach(meet);
for (const chart of data.charts ?? []) (chart.series ?? []).forEach(({ name }) => meet(name));

const faded = (name, share) => styles.get(name).colour + Math.round(share * 255).toString(16).padStart(2, "0");

// ---- Figures: `build` returns traces, layout and a text with the same content

const drawings = [];

function figure(parent, id, title, build, kind = "") {
  const plot = element("div", { id, class: "plot", role: "img" });
  const caption = element("figcaption", { id: `${id}-caption`, "aria-live": "polite" });
  parent.append(element("figure", { class: kind }, element("h3", {}, title), plot, caption));
  // Plotly does not support a second drawing of a figure before the first is finished.
  let last = Promise.resolve();
  const draw = () => {
    const { traces, layout, text, height } = build();
    if (height) plot.style.height = `${height}px`;
    caption.textContent = text;
    plot.setAttribute("aria-label", `${title}. ${text}`);
    last = last.then(() => Plotly.react(plot, traces, themed(layout, traces.length), settings(title)));
  };
  drawings.push(draw);
  return draw;
}

/** Plotly's buttons, less those that lead off the page. A saved picture has to bring its title and its key with it. */
function settings(title) {
  const save = (plot) => {
    const layout = { ...plot.layout, title: { text: safe(title) }, showlegend: true, margin: { ...plot.layout.margin, t: 56 } };
    Plotly.downloadImage({ data: plot.data, layout }, { format: "png", scale: 2, width: 1000, height: 600, filename: "figure" });
  };
  const button = { name: "save", title: "Save as a picture", icon: Plotly.Icons.camera, click: save };
  return { responsive: true, displaylogo: false, modeBarButtons: [[button, "zoom2d", "pan2d", "resetScale2d"]] };
}

/** The layout in the colours of the page's theme, which the style sheet knows. */
function themed(layout, drawn) {
  const look = getComputedStyle(document.documentElement);
  const [card, ink, muted, line] = ["--card", "--ink", "--muted", "--line"].map((name) => look.getPropertyValue(name).trim());
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, tickfont: { color: muted } };
  const named = (own) => ({ ...axis, ...own, title: { ...own.title, font: { size: 13, color: muted }, standoff: 8 } });
  const empty = { text: "not measured", xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, font: { size: 16, color: muted } };
  return {
    margin: { l: 8, r: 20, t: 28, b: 8 }, showlegend: false, hovermode: "closest", uirevision: "kept",
    annotations: drawn ? [] : [empty],
    // Scrolling past a figure on a touch screen must not zoom it.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    ...layout,
    paper_bgcolor: card, plot_bgcolor: card, font: { family: look.getPropertyValue("--sans"), size: 13, color: ink },
    hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
    xaxis: named(layout.xaxis), yaxis: named(layout.yaxis),
  };
}

// ---- Lines with bands

/** Polygons between low and high, one for every stretch where both are known. */
function band(name, x, low, high) {
  const outline = { x: [], y: [] };
  let stretch = [];
  const close = () => {
    const there = stretch, back = [...stretch].reverse();
    outline.x.push(...there.map((i) => x[i]), ...back.map((i) => x[i]), null);
    outline.y.push(...there.map((i) => high[i]), ...back.map((i) => low[i]), null);
    stretch = [];
  };
  x.forEach((_, i) => (low[i] != null && high[i] != null ? stretch.push(i) : stretch.length && close()));
  if (stretch.length) close();
  const fill = { fill: "toself", fillcolor: faded(name, 0.18), line: { width: 0 }, mode: "lines" };
  return { ...outline, ...fill, name: safe(name), legendgroup: name, showlegend: false, hoverinfo: "skip", meta: "band" };
}

function line(name, x, y, customdata) {
  const { colour, dash } = styles.get(name);
  const hover = { customdata, hovertemplate: "%{customdata}" };
  return { x, y, name: safe(name), legendgroup: name, mode: "lines", line: { color: colour, dash, width: name === data.palette.subject ? 4 : 2 }, meta: "estimate", ...hover };
}

const curve = (name, x, { estimate, low, high }) => [
  band(name, x, low, high),
  line(name, x, estimate, estimate.map((value, i) => interval(value, low[i], high[i]))),
];

/** All runs of an algorithm in one trace, with a gap between one and the next. */
function single(name, x, runs) {
  const drawn = { mode: "lines", line: { color: faded(name, 0.4), width: 0.8 }, hoverinfo: "skip", showlegend: false };
  return { x: runs.flatMap(() => [...x, null]), y: runs.flatMap((run) => [...run, null]), name: safe(name), meta: "single", ...drawn };
}

// ---- Environments

function environment(content, index) {
  const id = `environment-${index}`;
  const parent = section(id, content.title ?? content.name, content.note);
  const used = new Set(Object.values(content.algorithms ?? {}).flatMap((algorithm) => Object.keys(algorithm.curves ?? {})));
  const known = { ...Object.fromEntries([...used].map((key) => [key, { label: key }])), ...data.protocols };
  const state = { hidden: new Set(), protocol: used.has(data.first) ? data.first : Object.keys(known).find((key) => used.has(key)), log: false, seeds: false };
  const pairs = (content.improvement ?? []).flatMap((pair) => [pair.x, pair.y]);
  const names = [...new Set([...Object.keys(content.algorithms ?? {}), ...Object.keys(content.profiles?.algorithms ?? {}), ...pairs])];
  const grid = element("div", { class: "figures" });
  const draws = [];
  const draw = () => draws.forEach((one) => one());
  const change = (key) => (value) => ((state[key] = value), draw());

  const controls = element("div", { class: "controls" });
  if (names.length) controls.append(chooser(id, names, state.hidden, draw));
  if (used.size) {
    const options = Object.entries(known).map(([key, protocol]) => [key, protocol.label ?? key]);
    controls.append(
      select(`${id}-protocol`, "Protocol", options, state.protocol, change("protocol")),
      checkbox(`${id}-log`, "log x-axis", false, change("log")),
      checkbox(`${id}-seeds`, "show single seeds", false, change("seeds")));
    draws.push(figure(grid, `${id}-curves`, "Learning curves", () => curves(content, state, known), "wide"));
  } else parent.append(element("p", { class: "missing" }, "Learning curves were not measured."));
  if (content.profiles?.thresholds?.length) draws.push(figure(grid, `${id}-profile`, "Performance profile", () => profile(content, state)));
  if (content.improvement?.length) draws.push(figure(grid, `${id}-improvement`, "Probability of improvement", () => improvement(content, state)));
  parent.append(controls, grid);
}

function curves({ grid: usual, algorithms, ceiling }, { hidden, protocol, log, seeds }, known) {
  const shown = Object.entries(algorithms).filter(([name, { curves }]) => curves?.[protocol] && !hidden.has(name));
  const grid = shown[0]?.[1].curves[protocol].grid ?? usual; // tuned runs have their own budget
  const traces = [], ends = [];
  for (const [name, { curves, runs }] of shown) if (seeds && runs?.[protocol]) traces.push(single(name, grid, runs[protocol]));
  for (const [name, { curves }] of shown) {
    const { estimate, low, high, seeds: count } = curves[protocol];
    const end = estimate.findLastIndex((value) => value != null);
    traces.push(...curve(name, grid, curves[protocol]));
    const where = `after ${number(grid[end])} trajectories, ${count ?? "?"} seeds`;
    if (end >= 0) ends.push({ where, what: `${name} ${interval(estimate[end], low[end], high[end])}` });
  }
  if (ceiling != null && shown.length) {
    const ends = [grid[log && grid[0] <= 0 ? 1 : 0], grid.at(-1)];
    traces.push({ x: ends, y: [ceiling, ceiling], name: "highest return", mode: "lines", line: { color: "#8A8A8A", width: 1 }, meta: "ceiling", hoverinfo: "skip" });
  }
  const statistic = [...new Set(shown.map(([, { curves }]) => curves[protocol].statistic))].join(" / ");
  const { label = protocol, note = "" } = known[protocol];
  const missing = Object.keys(algorithms).filter((name) => !algorithms[name].curves?.[protocol]);
  const text = [
    shown.length ? `${label}: ${statistic} of the return over seeds; the band is its interval.` : `${label}: nothing to show.`,
    ...[...new Set(ends.map(({ where }) => where))].map((where) =>
      `At the end, ${where}: ${ends.filter((end) => end.where === where).map(({ what }) => what).join("; ")}.`),
    ceiling != null ? `The thin line is the highest possible return, ${number(ceiling)}.` : "",
    missing.length ? `Not measured under this protocol: ${missing.join(", ")}. ${note}` : "",
  ].filter(Boolean).join(" ");
  const layout = {
    hovermode: "x unified", uirevision: log,
    xaxis: { title: { text: "trajectories sampled" }, type: log ? "log" : "linear" },
    yaxis: { title: { text: safe(statistic ? `return (${statistic})` : "return") } },
  };
  return { traces, layout, text };
}

function profile({ profiles: { thresholds, algorithms } }, { hidden }) {
  const shown = Object.entries(algorithms).filter(([name]) => !hidden.has(name));
  const half = shown.map(([name, { estimate }]) => {
    const last = estimate.findLastIndex((share) => share >= 0.5);
    return `${name} ${last < 0 ? "at no threshold shown" : number(thresholds[last])}`;
  });
  const layout = {
    hovermode: "x unified",
    xaxis: { title: { text: "return τ" } },
    yaxis: { title: { text: "share of runs above τ" }, range: [-0.03, 1.03], tickformat: ".0%" },
  };
  const text = `Share of runs whose mean return over the whole run is above a threshold, all seeds; the band is its interval. Half of the runs are above: ${half.join("; ")}.`;
  return { traces: shown.flatMap(([name, shares]) => curve(name, thresholds, shares)), layout, text };
}

function improvement({ improvement: all }, { hidden }) {
  const pairs = all.filter(({ x, y }) => !hidden.has(x) && !hidden.has(y));
  const words = pairs.map(({ x, y, estimate, low, high }) => `${x} over ${y} ${interval(estimate, low, high)}`);
  const traces = pairs.map(({ x, y, estimate, low, high }, row) => ({
    x: [estimate], y: [row], name: safe(`${x} over ${y}`), mode: "markers", hovertemplate: interval(estimate, low, high),
    marker: { size: 11, color: styles.get(x).colour },
    error_x: { type: "data", symmetric: false, array: [high - estimate], arrayminus: [estimate - low], thickness: 2.5, width: 0, color: styles.get(x).colour },
  }));
  const ticks = pairs.map(({ x, y }) => safe(`${short(x)} > ${short(y)}`));
  const middle = { type: "line", x0: 0.5, x1: 0.5, y0: 0, y1: 1, yref: "paper", layer: "below", line: { color: "#8A8A8A", width: 1.5, dash: "dot" } };
  const layout = {
    shapes: [middle],
    xaxis: { title: { text: "probability" }, range: [-0.02, 1.02] },
    yaxis: { tickvals: pairs.map((_, row) => row), ticktext: ticks, range: [pairs.length - 0.4, -0.6], zeroline: false },
  };
  const text = `Probability that a run of one algorithm has a larger mean return over the whole run than a run of the other, all seeds; at ½ neither is better. ${words.join("; ")}.`;
  return { traces, layout, text, height: Math.max(336, 90 + 30 * all.length) };
}

// ---- Heat maps

const QUANTITIES = { final: "final return", reach: "trajectories to threshold" };

function heatmaps(maps) {
  const parent = section("heatmaps", "Sensitivity to the settings");
  const grid = element("div", { class: "figures" });
  const state = { quantity: "final" };
  const draws = maps.map((map, index) => figure(grid, `heatmap-${index}`, map.title ?? `${map.algorithm}, ${map.env}`, () => heatmap(map, state)));
  const change = (value) => ((state.quantity = value), draws.forEach((draw) => draw()));
  parent.append(element("div", { class: "controls" }, select("heatmaps-quantity", "Show", Object.entries(QUANTITIES), "final", change)), grid);
}

function heatmap(map, { quantity }) {
  const z = map[quantity] ?? [], more = quantity === "final", what = map.label ?? QUANTITIES[quantity];
  const cells = z.flatMap((row, j) => row.map((value, i) => ({ value, i, j, x: number(map.x[i]), y: number(map.y[j]) })));
  const filled = cells.filter(({ value }) => value != null), gaps = cells.filter(({ value }) => value == null);
  const best = filled.reduce((a, b) => (!a || (more ? b.value > a.value : b.value < a.value) ? b : a), null);
  const at = (cell) => `${map.x_name} ${cell.x}, ${map.y_name} ${cell.y}`;
  const colours = { colorscale: "Cividis", ...(map.range ? { zmin: map.range[0], zmax: map.range[1] } : {}), reversescale: !more, colorbar: { thickness: 10, outlinewidth: 0, len: 1 } };
  const short = (value) => number(value != null && Math.abs(value) >= 10 ? Math.round(value) : value); // on a phone a cell has room for three digits
  const star = (row, column) => (map.marked?.[row][column] ? "*" : "");
  const words = { text: z.map((row, j) => row.map((value, i) => short(value) + star(j, i))), customdata: z.map((row) => row.map(number)), texttemplate: cells.length <= 64 && map.x.length * 36 < innerWidth ? "%{text}" : "", textfont: { size: 11 } };
  const hover = { hovertemplate: `${safe(map.x_name)} %{x}<br>${safe(map.y_name)} %{y}<br>%{customdata}<extra></extra>`, hoverongaps: false };
  const trace = { type: "heatmap", x: map.x.map(number), y: map.y.map(number), z, xgap: 2, ygap: 2, ...colours, ...words, ...hover };
  const crosses = {
    x: gaps.map((cell) => cell.x), y: gaps.map((cell) => cell.y), mode: "markers", hoverinfo: "skip",
    marker: { symbol: "x-thin", size: 8, line: { width: 1.5, color: "#8A8A8A" } },
  };
  const frame = best && { x0: best.i - 0.5, x1: best.i + 0.5, y0: best.j - 0.5, y1: best.j + 0.5 };
  const axis = (name, values) => ({
    title: { text: safe(name) }, type: "category", categoryorder: "array", categoryarray: values.map(number),
    showgrid: false, zeroline: false,
    range: [-0.5, values.length - 0.5],
  });
  const layout = {
    xaxis: axis(map.x_name, map.x), yaxis: axis(map.y_name, map.y), uirevision: quantity,
    shapes: frame ? [{ type: "rect", ...frame, line: { color: "#D55E00", width: 3 } }] : [],
  };
  const text = [
    best ? `${more ? "Highest" : "Fewest"} ${what}: ${number(best.value)}, at ${at(best)} (framed).` : `No setting has a value for: ${what}.`,
    gaps.length ? `A cross: ${more ? "no value" : "the threshold was never reached"} (${gaps.length} of ${cells.length}).` : "",
    map.share != null ? `Share of settings near the best: ${percent(map.share)}${map.share_interval ? ` [${map.share_interval.map(percent).join(", ")}]` : ""}.` : "",
    map.note ?? "",
  ].filter(Boolean).join(" ");
  return { traces: best ? [trace, crosses] : [], layout, text };
}

// ---- The estimators' variance, bias and error

const PARTS = { variance: "variance", bias: "bias, squared", error: "mean squared error", signal: "gradient, squared norm" };

function variances(parts) {
  const parent = section("variance", "Variance and bias of the estimators");
  const grid = element("div", { class: "figures" });
  for (const [index, part] of parts.entries()) {
    const id = `variance-${index}`, names = Object.keys(part.algorithms ?? {});
    const offered = Object.entries(PARTS).filter(([key]) => names.some((name) => part.algorithms[name][key]?.length));
    if (!offered.length) continue;
    const state = { hidden: new Set(), quantity: offered[0][0], plain: true };
    const holder = element("div", {});
    const draw = figure(holder, id, part.title ?? part.env, () => variance(part, state));
    const change = (key) => (value) => ((state[key] = value), draw());
    holder.firstChild.insertBefore(element("div", { class: "controls" },
      select(`${id}-quantity`, "Show", offered, state.quantity, change("quantity")),
      checkbox(`${id}-plain`, "plain estimator’s variance (thin)", true, change("plain")),
      chooser(id, names, state.hidden, draw)), holder.querySelector(".plot"));
    grid.append(holder.firstChild);
  }
  parent.append(grid);
}

function variance({ checkpoints, algorithms }, { hidden, quantity, plain }) {
  const shown = Object.entries(algorithms).filter(([name, values]) => values[quantity]?.length && !hidden.has(name));
  const traces = [], ends = [];
  // A logarithmic axis cannot show zero, or a bias whose estimate is negative.
  const positive = (values) => values.map((value) => (value > 0 ? value : null));
  for (const [name, values] of shown) {
    const y = values[quantity], compared = quantity === "variance" && values.plain?.at(-1);
    traces.push({ ...line(name, checkpoints, positive(y), y.map(number)), mode: "lines+markers", marker: { size: 6 } });
    if (plain && values.plain?.length) {
      const thin = line(name, checkpoints, positive(values.plain), values.plain.map(number));
      traces.push({ ...thin, name: safe(`${name}, plain`), line: { color: faded(name, 0.65), dash: "dot", width: 1.2 }, meta: "plain" });
    }
    ends.push(`${name} ${number(y.at(-1))}${compared ? `, ${number(y.at(-1) / compared)} of the plain estimator’s` : ""}`);
  }
  const left = shown.flatMap(([, values]) => values[quantity]).filter((value) => value != null && value <= 0).length;
  const text = [
    `${PARTS[quantity]} at the last checkpoint: ${ends.join("; ")}.`,
    left ? `${left} values at or below zero cannot be shown on this axis.` : "",
  ].filter(Boolean).join(" ");
  const layout = {
    hovermode: "x unified",
    xaxis: { title: { text: "trajectories at the checkpoint" } },
    yaxis: { title: { text: PARTS[quantity] }, type: "log", exponentformat: "power" },
  };
  return { traces, layout, text: text[0].toUpperCase() + text.slice(1) };
}

// ---- Charts of any kind: lines with intervals, or a grid of numbers; charts of one section are shown together

function charts(all) {
  for (const [index, title] of [...new Set(all.map((chart) => chart.section))].entries()) {
    const mine = all.filter((chart) => chart.section === title);
    const parent = section(`charts-${index}`, title);
    const grid = element("div", { class: "figures" });
    mine.forEach((chart, place) => {
      const build = chart.final ? () => heatmap(chart, { quantity: "final" }) : chart.bars ? () => bars(chart) : () => lines(chart);
      figure(grid, `charts-${index}-${place}`, chart.title, build, chart.wide ? "wide" : "");
    });
    parent.append(grid);
  }
}

function bars({ names, bars: values, x_name, note }) {
  const trace = { type: "bar", orientation: "h", x: values.toReversed(), y: names.toReversed().map(safe), marker: { color: COLOURS[0] }, hovertemplate: "%{y}: %{x}<extra></extra>" };
  const layout = { xaxis: { title: { text: safe(x_name) } }, yaxis: { automargin: true } };
  const words = names.map((name, i) => `${name} ${number(values[i])}`);
  return { traces: [trace], layout, text: `${note ?? ""} ${words.join("; ")}.`.trim() };
}

function lines({ series, x_name, y_name, log, level, note }) {
  const mode = ({ points, x }) => (points ? "markers" : x.length < 20 ? "lines+markers" : "lines");
  const traces = series.flatMap(({ name, x, estimate, low, high, points }) => [
    ...(low ? [band(name, x, low, high)] : []),
    { ...line(name, x, estimate, estimate.map((y, i) => (low ? interval(y, low[i], high[i]) : number(y)))), mode: mode({ points, x }) },
  ]);
  if (level != null) {
    const ends = series.flatMap(({ x }) => x);
    const flat = { color: "#8A8A8A", width: 1.2, dash: "dot" };
    traces.push({ x: [Math.min(...ends), Math.max(...ends)], y: [level, level], mode: "lines", line: flat, showlegend: false, hoverinfo: "skip" });
  }
  const axis = (name, logarithmic) => ({ title: { text: safe(name) }, type: logarithmic ? "log" : "linear", exponentformat: "power" });
  const words = series.map(({ name, estimate }) => `${name} ${number(estimate.findLast((value) => value != null))}`);
  const layout = {
    showlegend: true, legend: { orientation: "h", y: -0.25 },
    xaxis: axis(x_name, log.includes("x")), yaxis: axis(y_name, log.includes("y")),
  };
  return { traces, layout, text: `${note ?? ""} At the right end: ${words.join("; ")}.`.trim(), height: 460 };
}

// ---- The page

function contents() {
  const links = [...document.querySelectorAll("main > section, #figures > section")];
  const nav = document.getElementById("contents");
  const titles = new Set(); // charts and a table may have the same title: only the first is listed
  for (const one of links) {
    const title = one.querySelector("h2").textContent;
    if (!titles.has(title)) nav.append(element("a", { href: `#${one.id}` }, title));
    titles.add(title);
  }
  nav.hidden = links.length < 2;
}

environments.forEach(environment);
if (data.heatmaps?.length) heatmaps(data.heatmaps);
if (data.variance?.length) variances(data.variance);
if (data.charts?.length) charts(data.charts);
contents();
const draw = () => drawings.forEach((one) => one());
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
