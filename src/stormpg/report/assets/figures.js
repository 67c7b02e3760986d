// ---- What each figure shows: axes, marks, and a text with the same content

const MIDDLE = { colour: data.grey, width: 1.2, dash: [1.2, 1.6] };
const styles = data.styles; // of each name: report/palette.py
const lookOf = (name) => styles[name] ?? { colour: data.grey, width: 1.6, dash: [] };
const faded = (look, width) => ({ ...look, width, dash: [] });
const between = (estimate, low, high) => estimate.map((value, i) => (low ? interval(value, low[i], high[i]) : number(value)));

/** Lines with their bands; with many lines, only the subject has one. Its line is drawn last, over the others. */
function bands(shown) {
  const heaviest = Math.max(0, ...shown.map(({ look }) => look.width));
  const ordered = shown.toSorted((a, b) => a.look.width - b.look.width);
  const banded = ordered.filter(({ low, look }) => low && (shown.length <= data.many || look.width === heaviest));
  return [
    ...banded.map(({ name, x, low, high, look }) => ({ kind: "band", name, x, low, high, y: [...low, ...high], look })),
    ...ordered.map(({ name, x, estimate, low, high, look, dots }) => ({ kind: "line", name, x, y: estimate, words: between(estimate, low, high), look, dots })),
  ];
}

function curves({ grid: usual, algorithms, ceiling, log: suits }, { hidden, protocol, axis, seeds }, known) {
  const shown = Object.entries(algorithms).filter(([name, { curves }]) => curves?.[protocol] && !hidden.has(name));
  const grid = shown[0]?.[1].curves[protocol].grid ?? usual; // tuned runs have their own budget
  const log = axis === "log" || (axis === "suits" && Boolean(suits));
  const marks = [], ends = [];
  if (seeds) for (const [name, { runs }] of shown) for (const y of runsOf(runs, protocol)) marks.push({ kind: "line", name, x: grid, y, look: faded(lookOf(name), 0.8), faint: 0.4 });
  if (ceiling != null && shown.length) marks.push({ kind: "rule", y: [ceiling], at: { y: ceiling }, look: { colour: data.grey, width: 1 } });
  marks.push(...bands(shown.map(([name, { curves }]) => ({ name, look: lookOf(name), x: grid, ...curves[protocol] }))));
  for (const [name, { curves }] of shown) {
    const { estimate, low, high, seeds: count } = curves[protocol], end = estimate.findLastIndex((value) => value != null);
    if (end >= 0) ends.push({ where: `after ${number(grid[end])} trajectories, ${count ?? "?"} seeds`, what: `${name} ${interval(estimate[end], low[end], high[end])}` });
  }
  const statistic = [...new Set(shown.map(([, { curves }]) => curves[protocol].statistic))].join(" / ");
  const { label = protocol, note = "" } = known[protocol] ?? {};
  const missing = Object.keys(algorithms).filter((name) => !algorithms[name].curves?.[protocol]);
  const cut = seeds && shown.map(([, { curves, runs }]) => (runs?.all?.length < curves.all?.seeds ? runs.all.length : 0)).find(Boolean);
  const places = [...new Set(ends.map(({ where }) => where))];
  const many = shown.length > data.many ? ", drawn for the heaviest line only" : "";
  const general = shown.length ? `${label}: ${statistic} of the return; the band is its interval over seeds${many}.` : `${label}: nothing to show.`;
  const text = [
    data.small ? "" : general, // said once for all
    places.length === 1 ? `The curves end ${places[0]}.` : "",
    log ? "Logarithmic axis." : "",
    cut ? `Single runs: of the first ${cut} seeds.` : "",
    ceiling != null ? `Thin line: the highest possible return, ${number(ceiling)}.` : "",
    missing.length ? `Not measured under this protocol: ${missing.join(", ")}. ${note}` : "",
  ].filter(Boolean);
  const spoken = places.map((where) => `At the end, ${where}: ${ends.filter((end) => end.where === where).map(({ what }) => what).join("; ")}.`);
  return {
    x: { title: "trajectories sampled", log, range: log ? [Math.max(grid.find((x) => x > 0), grid.at(-1) / 200), grid.at(-1)] : null }, y: { title: statistic ? `return (${statistic})` : "return" },
    marks, view: `${log} ${protocol}`, general, text: text.join(" "), spoken: [general, ...text, ...spoken].join(" "), labels: true,
    key: shown.length <= data.many && !(data.small && innerWidth > 640), // the controls are a key too, and stay in view
    height: !data.small && shown.length > 20 ? 80 + 15 * shown.length : null, // room for all names
  };
}

/** The single runs under a protocol; those of "10 best runs" are stored as their places among all runs. */
function runsOf(runs, protocol) {
  const own = runs?.[protocol];
  if (!own?.of) return own ?? [];
  return own.rows ? own.rows.map((row) => runs[own.of][row]) : runs[own.of];
}

function profile({ profiles: { thresholds, algorithms } }, { hidden }) {
  const shown = Object.entries(algorithms).filter(([name]) => !hidden.has(name));
  const half = shown.map(([name, { estimate }]) => {
    const last = estimate.findLastIndex((share) => share >= 0.5);
    return `${name} ${last < 0 ? "at no threshold shown" : number(thresholds[last])}`;
  });
  const text = "Share of runs whose mean return over the whole run is above τ; the band is its interval over seeds.";
  const marks = bands(shown.map(([name, shares]) => ({ name, look: lookOf(name), x: thresholds, ...shares })));
  const y = { title: "share of runs above τ", range: [-0.03, 1.03], percent: true };
  return { x: { title: "return τ" }, y, marks, text, spoken: `${text} Half of the runs are above: ${half.join("; ")}.`, key: shown.length <= data.many };
}

function improvement({ improvement: all }, { hidden }) {
  const pairs = all.filter(({ x, y }) => !hidden.has(x) && !hidden.has(y));
  const words = pairs.map(({ x, y, estimate, low, high }) => `${x} over ${y} ${interval(estimate, low, high)}`);
  const rows = pairs.map(({ x, y, estimate, low, high }, row) => ({
    kind: "reach", name: `${x} over ${y}`, x: [estimate, low, high], y: [row], words: interval(estimate, low, high), look: lookOf(x),
  }));
  const text = "Probability that a run of the first has a larger mean return over the whole run than a run of the second; at ½ neither is better.";
  const ticks = pairs.map(({ x, y }, at) => ({ at, text: `${short(x)} > ${short(y)}` }));
  const marks = pairs.length ? [{ kind: "rule", at: { x: 0.5 }, look: MIDDLE }, ...rows] : [];
  const axes = { x: { title: "probability", range: [-0.04, 1.04] }, y: { ticks, range: [Math.max(pairs.length, 1) - 0.4, -0.6] } };
  return { ...axes, marks, text, spoken: `${text} ${words.join("; ")}.`, height: Math.max(336, 70 + 28 * pairs.length) };
}

// ---- Maps: grids of numbers. Maps of one kind share their colour scale

const QUANTITIES = { final: "final return", reach: "trajectories to threshold" };

/** One scale for all maps of a kind: as given; around 1 for ratios; over all values otherwise. */
function scaleFor(maps, quantity, ratio) {
  const values = maps.flatMap((map) => (map[quantity] ?? []).flat()).filter((value) => value != null);
  if (maps[0].range && quantity === "final") return { stops: data.scales.sequential, range: maps[0].range };
  if (ratio) {
    const most = Math.max(2, ...values.filter((value) => value > 0).map((value) => Math.max(value, 1 / value)));
    return { stops: data.scales.diverging, range: [1 / most, most], log: true };
  }
  const stops = quantity === "reach" ? data.scales.sequential.toReversed() : data.scales.sequential;
  return { stops, range: values.length ? [Math.min(...values), Math.max(...values)] : [0, 1] };
}

function heatmap(map, quantity, scale) {
  const z = map[quantity] ?? [], more = quantity === "final", what = map.label ?? QUANTITIES[quantity];
  const cells = z.flatMap((row, j) => row.map((value, i) => ({ value, i, j, x: number(map.x[i]), y: number(map.y[j]) })));
  const filled = cells.filter(({ value }) => value != null), gaps = cells.length - filled.length;
  const at = (cell) => [map.x_name ? `${map.x_name} ${cell.x}` : cell.x, map.y_name ? `${map.y_name} ${cell.y}` : cell.y].join(", ");
  const brief = (value) => (map.range ? value.toFixed(2).replace(/^-0.00$/, "0.00").replace("-", "−") : number(Math.abs(value) >= 10 ? Math.round(value) : Number(value.toPrecision(2))));
  const better = (a, b) => (!a || (more ? b.value > a.value : b.value < a.value) ? b : a);
  const best = filled.reduce(better, null);
  const framed = map.best === "columns" ? map.x.map((_, i) => filled.filter((cell) => cell.i === i).reduce(better, null)) : [best];
  const marks = cells.map((cell) => {
    const { value, i, j } = cell, star = map.marked?.[j]?.[i] ? "*" : "";
    const look = value == null ? { cross: data.grey } : { ...colourOf(scale, value), text: brief(value) + star, frame: framed.includes(cell) ? data.colours[1] : null };
    return { kind: "cell", x: [i], y: [j], name: at(cell), words: value == null ? missingOf(map, quantity) : number(value) + star, value, ...look };
  });
  const axis = (name, values) => ({ title: name, ticks: values.map((value, i) => ({ at: i, text: String(number(value)) })), range: [-0.5, values.length - 0.5] });
  const text = [
    best && map.best === "columns" ? `Framed: the highest ${what} of each column.`
      : best ? `${more ? "Highest" : "Fewest"} ${what}: ${number(best.value)}, at ${at(best)} (framed).` : `No setting has a value for: ${what}.`,
    gaps ? `×: ${missingOf(map, quantity)} (${gaps} of ${cells.length}).` : "",
    map.marked ? `*: ${map.star ?? "marked"}.` : "",
    map.share != null ? `Share of settings near the best: ${percent(map.share)}${map.share_interval ? ` [${map.share_interval.map(percent).join(", ")}]` : ""}.` : "",
    map.note ?? "",
  ].filter(Boolean).join(" ");
  const height = map.y.length > 10 ? 110 + 23 * map.y.length : null;
  return { x: axis(map.x_name, map.x), y: axis(map.y_name, map.y), marks: best ? marks : [], text, scale: best ? scale : null, view: quantity, height };
}

const missingOf = (map, quantity) => map.cross ?? (quantity === "final" ? "no value" : "the threshold was never reached");

// ---- The estimators' variance, bias and error

const PARTS = { variance: "variance", bias: "bias, squared", error: "mean squared error", signal: "gradient, squared norm" };

function variance({ checkpoints, algorithms }, { hidden, quantity, plain }) {
  const shown = Object.entries(algorithms).filter(([name, values]) => values[quantity]?.length && !hidden.has(name));
  const marks = [], ends = [];
  for (const [name, values] of shown) {
    const y = values[quantity], compared = quantity === "variance" && values.plain?.at(-1);
    if (plain && values.plain?.length) marks.push({ kind: "line", name, x: checkpoints, y: values.plain, look: { ...lookOf(name), dash: [1.2, 1.6], width: 1.1 }, faint: 0.7, plain: true });
    ends.push(`${name} ${number(y.at(-1))}${compared ? `, ${number(y.at(-1) / compared)} of the plain estimator’s` : ""}`);
  }
  marks.push(...bands(shown.map(([name, values]) => ({ name, look: lookOf(name), x: checkpoints, estimate: values[quantity], dots: "too" }))));
  // A logarithmic axis cannot show zero, or a bias whose estimate is negative.
  const left = shown.flatMap(([, values]) => values[quantity]).filter((value) => value != null && value <= 0).length;
  const text = [`${capital(PARTS[quantity])} at the last checkpoint: ${ends.join("; ")}.`, left ? `${left} values at or below zero cannot be shown on this axis.` : ""];
  return { x: { title: "trajectories at the checkpoint" }, y: { title: PARTS[quantity], log: true }, marks, text: text.filter(Boolean).join(" "), view: quantity, labels: true };
}

// ---- Charts of any kind

function bars({ names, bars: values, x_name, note }) {
  const marks = names.map((name, row) => ({ kind: "bar", name, x: [0, values[row]], y: [row], words: number(values[row]), look: { colour: data.colours[0] } }));
  const y = { ticks: names.map((name, at) => ({ at, text: name })), range: [names.length - 0.4, -0.6] };
  const words = names.map((name, i) => `${name} ${number(values[i])}`);
  return { x: { title: x_name, range: [0, 1.05 * Math.max(...values)] }, y, marks, text: note ?? "", spoken: `${note ?? ""} ${words.join("; ")}.`.trim(), height: 90 + 34 * names.length };
}

function lines({ series, x_name, y_name, log, level, note }) {
  const marks = bands(series.map(({ points, ...one }) => ({ ...one, look: lookOf(one.name), dots: points ? "only" : one.x.length < 20 ? "too" : "" })));
  if (level != null) marks.unshift({ kind: "rule", y: [level], at: { y: level }, look: MIDDLE });
  const words = series.map(({ name, estimate }) => `${name} ${number(estimate.findLast((value) => value != null))}`);
  const text = note ?? "";
  return { x: { title: x_name, log: log.includes("x") }, y: { title: y_name, log: log.includes("y") }, marks, text, spoken: `${text} At the right end: ${words.join("; ")}.`.trim(), labels: true, key: true };
}
