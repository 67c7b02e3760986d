// ---- A figure as SVG: `draw` makes it from a description, { x, y, marks }, in which marks are lines, bands, dots ... (figures.js)

const FONT = 12.5, LONGEST = 36; // letters of a name at the end of its line
const ruler = document.createElement("canvas").getContext("2d");

/** The colours and fonts of the page's theme, which the style sheet knows. */
function theme() {
  const look = getComputedStyle(document.documentElement);
  const [card, ink, muted, line, font] = ["--card", "--ink", "--muted", "--line", "--sans"].map((name) => look.getPropertyValue(name).trim());
  return { card, ink, muted, line, font };
}

function widthOf(words, size = FONT) {
  ruler.font = `${size}px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  return ruler.measureText(words).width;
}

/** A function from values to pixels, with its inverse. */
function scaleOf({ log, range }, from, to) {
  const [low, high] = log ? range.map(Math.log10) : range;
  const at = (value) => from + (((log ? Math.log10(value) : value) - low) / (high - low)) * (to - from);
  at.back = (place) => {
    const value = low + ((place - from) / (to - from)) * (high - low);
    return log ? 10 ** value : value;
  };
  return at;
}

/** About `count` round numbers within a range. */
function ticksOf({ log, range }, count) {
  const [low, high] = [Math.min(...range), Math.max(...range)];
  const decades = log ? Math.log10(high / low) : 0;
  if (decades > 0.7) {
    const apart = Math.max(1, Math.ceil(decades / count)), room = decades < 3 ? count / decades : 0;
    const firsts = room > 3 ? [1, 2, 5] : room > 1.6 ? [1, 3] : [1], made = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      if (power % apart === 0) made.push(...firsts.map((first) => first * 10 ** power));
    return made.map((value) => Number(value.toPrecision(6))).filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  const rough = (high - low) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const every = (step) => {
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  };
  const sizes = [0.5, 1, 2, 5, 10], size = sizes.findIndex((one, i) => i > 0 && one * power >= rough * 0.999);
  const made = every(power * sizes[size]);
  return made.length > 1 || count < 2 ? made : every(power * sizes[size - 1]); // one number alone does not say how long an axis is
}

/** The range of an axis: as given, as zoomed, or over all values of all marks. */
function rangeOf(axis, marks, own, zoomed) {
  if (zoomed) return zoomed;
  if (axis.range) return axis.range;
  const values = marks.flatMap((mark) => mark[own] ?? []).filter((value) => value != null && (!axis.log || value > 0));
  let low = Infinity, high = -Infinity;
  for (const value of values) (low = Math.min(low, value)), (high = Math.max(high, value));
  if (low > high) return axis.log ? [1, 10] : [0, 1];
  const edge = own === "y" ? 0.04 : marks.some(({ dots }) => dots) ? 0.015 : 0; // lines end at the edge, dots do not
  if (axis.log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** edge, high * (high / low) ** edge];
  if (own === "x" && low > 0 && low < 0.1 * high) low = 0;
  const pad = low === high ? Math.abs(low) / 2 || 1 : edge * (high - low);
  return [low - pad, high + pad];
}

/** The path of a line: a new piece after each gap and after each value that a logarithmic axis cannot show. */
function path(x, y, X, Y) {
  let made = "", pen = "M";
  for (let i = 0; i < x.length; i++) {
    const left = x[i] == null || y[i] == null ? NaN : X(x[i]), top = Number.isNaN(left) ? NaN : Y(y[i]);
    if (!Number.isFinite(left) || !Number.isFinite(top)) pen = "M";
    else (made += `${pen}${left.toFixed(1)},${top.toFixed(1)}`), (pen = "L");
  }
  return made;
}

const dashes = ({ dash, width }) => (dash?.length ? dash.map((part) => part * width).join(" ") : null);

const DRAW = {
  line({ name, x, y, look, dots, faint }, X, Y) {
    const stroke = { fill: "none", stroke: look.colour, "stroke-width": look.width, "stroke-dasharray": dashes(look), "stroke-linejoin": "round", opacity: faint };
    const made = [dots === "only" ? "" : drawn("path", { d: path(x, y, X, Y), ...stroke })];
    const shown = x.map((value, i) => [X(value), y[i] == null ? NaN : Y(y[i])]).filter((place) => place.every(Number.isFinite));
    // A value between two gaps has no line, but a dot.
    for (const [cx, cy] of dots ? shown : shown.length === 1 ? shown : []) made.push(drawn("circle", { cx, cy, r: 2 + look.width / 2, fill: look.colour }));
    return drawn("g", faint ? {} : { "data-name": name }, ...made);
  },
  band({ name, x, low, high, look }, X, Y) {
    const made = drawn("g", { "data-name": name });
    let stretch = [];
    const close = () => {
      const back = stretch.toReversed();
      const edge = [...stretch.map((i) => [x[i], high[i]]), ...back.map((i) => [x[i], low[i]])];
      if (edge.length) made.append(drawn("path", { d: `${path(edge.map((p) => p[0]), edge.map((p) => p[1]), X, Y)}Z`, fill: look.colour, opacity: look.width > 3 ? 0.2 : 0.13 }));
      stretch = [];
    };
    x.forEach((at, i) => (low[i] != null && high[i] != null && Number.isFinite(X(at) + Y(low[i]) + Y(high[i])) ? stretch.push(i) : close()));
    close();
    return made;
  },
  rule({ at, look }, X, Y, [right, bottom]) {
    const [x1, x2, y1, y2] = at.x != null ? [X(at.x), X(at.x), 0, bottom] : [0, right, Y(at.y), Y(at.y)];
    return drawn("line", { x1, x2, y1, y2, stroke: look.colour, "stroke-width": look.width, "stroke-dasharray": dashes(look) });
  },
  reach({ name, x: [estimate, low, high], y: [row], look }, X, Y) {
    const bar = drawn("line", { x1: X(low), x2: X(high), y1: Y(row), y2: Y(row), stroke: look.colour, "stroke-width": 3, opacity: 0.55 });
    return drawn("g", { "data-name": name }, bar, drawn("circle", { cx: X(estimate), cy: Y(row), r: 5, fill: look.colour }));
  },
  bar({ x: [, end], y: [row], look }, X, Y) {
    const half = Math.abs(Y(0) - Y(1)) * 0.36;
    return drawn("rect", { x: X(0), y: Y(row) - half, width: Math.max(0, X(end) - X(0)), height: 2 * half, fill: look.colour });
  },
  cell({ x: [column], y: [row], fill, text, ink, frame, cross }, X, Y) {
    const [w, h] = [Math.abs(X(1) - X(0)) - 2, Math.abs(Y(1) - Y(0)) - 2], [cx, cy] = [X(column), Y(row)];
    const box = { x: cx - w / 2, y: cy - h / 2, width: w, height: h, rx: 2 };
    const made = fill ? [drawn("rect", { ...box, fill })] : [];
    if (frame) made.push(drawn("rect", { ...box, fill: "none", stroke: frame, "stroke-width": Math.min(3, w / 6) }));
    if (cross) made.push(drawn("path", { d: `M${cx - 4},${cy - 4}l8,8m0,-8l-8,8`, stroke: cross, "stroke-width": 1.5 }));
    const size = Math.min(12, h * 0.7), fits = text && widthOf(text, size) < w - 4 && h > 13;
    if (fits) made.push(drawn("text", { x: cx, y: cy, "text-anchor": "middle", "dominant-baseline": "central", "font-size": size, fill: ink }, text));
    return drawn("g", {}, ...made);
  },
};

/** Names at the right end of their lines, moved apart. Empty if they do not fit. */
function endLabels(lines, X, Y, [right, bottom], look) {
  const apart = 15;
  if (lines.length * apart > bottom) return [];
  const ends = lines.map(({ name, x, y, look, dots }) => {
    const last = y.findLastIndex((value, i) => value != null && Number.isFinite(Y(value)) && X(x[i]) <= right + 1 && X(x[i]) >= -1);
    return { name, look, dots, from: last < 0 ? null : [X(x[last]), Math.min(bottom, Math.max(0, Y(y[last])))] };
  }).filter(({ from }) => from).sort((a, b) => a.from[1] - b.from[1]);
  let least = 6;
  for (const end of ends) least = (end.at = Math.max(end.from[1], least)) + apart;
  let most = bottom - 2;
  for (const end of ends.toReversed()) most = (end.at = Math.min(end.at, most)) - apart;
  return ends.map(({ name, look: { colour, width, dash }, dots, from, at }) => drawn("g", { "data-name": name },
    drawn("path", { d: `M${from[0]},${from[1]}L${right + 8},${at}`, fill: "none", stroke: colour, "stroke-width": 0.8, opacity: 0.7 }),
    dots === "only" ? drawn("circle", { cx: right + 21, cy: at, r: 2 + width / 2, fill: colour })
      : drawn("path", { d: `M${right + 8},${at}h26`, stroke: colour, "stroke-width": width, "stroke-dasharray": dashes({ dash, width }) }),
    drawn("text", { x: right + 39, y: at, "dominant-baseline": "central", "font-size": FONT, "font-weight": width > 3 ? 700 : 400, fill: look.ink }, short(name, LONGEST))));
}

function draw(plot, width, height, { title = "", zoom = {} } = {}) {
  const look = theme(), { marks } = plot;
  const x = { ...plot.x, range: rangeOf(plot.x, marks, "x", zoom.x) }, y = { ...plot.y, range: rangeOf(plot.y, marks, "y", zoom.y) };
  const named = marks.filter((mark) => mark.kind === "line" && mark.name && !mark.faint);
  const labelled = plot.labels && width >= 600 && named.length && named.length * 15 < height - 70;
  const room = labelled ? Math.min(0.3 * width, 47 + Math.max(...named.map(({ name, look }) => widthOf(short(name, LONGEST)) * (look.width > 3 ? 1.1 : 1)))) : 14;
  const most = Math.max(8, Math.round(width / 16)); // letters of a category
  const numbered = (axis, count) => {
    const places = ticksOf(axis, count), texts = axis.percent ? places.map(percent) : onAxis(places);
    return places.map((at, i) => ({ at, text: texts[i] }));
  };
  const rows = y.ticks?.map((tick) => ({ ...tick, text: short(tick.text, most) })) ?? numbered(y, (height - 60) / 46);
  const bar = plot.scale ? 32 + Math.max(...barTicks(plot.scale, height).map(({ text }) => widthOf(text, 11))) : 0;
  const left = Math.ceil(Math.max(0, ...rows.map(({ text }) => widthOf(text)))) + 8 + (y.title ? 22 : 0);
  const right = Math.max(40, width - left - Math.max(room, bar));
  const columns = x.ticks ?? numbered(x, right / 85);
  const widest = Math.max(0, ...columns.map(({ text }) => widthOf(short(text))));
  const turned = !x.ticks || widest < right / columns.length - 4 ? 0 : right / columns.length < 24 ? -90 : -38; // degrees
  const under = (turned ? widest * Math.sin((-turned * Math.PI) / 180) + 14 : 20) + (x.title ? 22 : 0), top = title ? 40 : 8;
  const bottom = Math.max(40, height - under - top);
  const X = scaleOf(x, 0, right), Y = scaleOf(y, bottom, 0);
  const letters = { "font-size": FONT, fill: look.muted };
  const axes = drawn("g", {}), inside = drawn("svg", { x: 0, y: 0, width: right, height: bottom, overflow: "hidden" });
  for (const { at, text } of rows) {
    if (!y.ticks) axes.append(drawn("line", { x1: 0, x2: right, y1: Y(at), y2: Y(at), stroke: look.line }));
    axes.append(drawn("text", { class: "y-tick", x: -8, y: Y(at), "text-anchor": "end", "dominant-baseline": "central", ...letters }, text));
  }
  for (const { at, text } of columns) {
    if (!x.ticks) axes.append(drawn("line", { x1: X(at), x2: X(at), y1: 0, y2: bottom, stroke: look.line }));
    const [across, down] = [X(at) + 4, bottom + (turned < -60 ? 6 : 12)];
    const place = turned ? { x: across, y: down, "text-anchor": "end", transform: `rotate(${turned} ${across} ${down})` } : { x: X(at), y: bottom + 17, "text-anchor": "middle" };
    axes.append(drawn("text", { class: "x-tick", ...place, ...letters }, short(text)));
  }
  if (!x.ticks) axes.append(drawn("line", { x1: 0, x2: right, y1: bottom, y2: bottom, stroke: look.muted }));
  if (x.title) axes.append(drawn("text", { x: right / 2, y: height - top - 7, "text-anchor": "middle", ...letters }, short(x.title, 80)));
  if (y.title) axes.append(drawn("text", { transform: `translate(${14 - left} ${bottom / 2}) rotate(-90)`, "text-anchor": "middle", ...letters }, short(y.title, 48)));
  for (const mark of marks) inside.append(DRAW[mark.kind](mark, X, Y, [right, bottom]));
  if (!marks.length) inside.append(drawn("text", { x: right / 2, y: bottom / 2, "text-anchor": "middle", "font-size": 16, fill: look.muted }, "not measured"));
  const body = drawn("g", { transform: `translate(${left} ${top})` }, axes, inside);
  if (labelled) body.append(...endLabels(named, X, Y, [right, bottom], look));
  if (plot.scale) body.append(colourBar(plot.scale, right + 12, bottom, letters));
  const made = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": look.font }, body);
  if (title) made.append(drawn("text", { x: 12, y: 24, "font-size": 15, "font-weight": 700, fill: look.ink }, short(title, 110)));
  return Object.assign(made, { frame: { left, top, right, bottom, X, Y, x, y }, labelled });
}

// ---- Colour scales

const mixed = (a, b, share) => `#${[1, 3, 5].map((i) => Math.round(parseInt(a.slice(i, i + 2), 16) * (1 - share) + parseInt(b.slice(i, i + 2), 16) * share).toString(16).padStart(2, "0")).join("")}`;

/** The colour of a value, and an ink that can be read on it. */
function colourOf({ stops, range: [low, high], log }, value) {
  const to = log ? Math.log : (x) => x;
  const share = high === low ? 0.5 : Math.min(1, Math.max(0, (to(value) - to(low)) / (to(high) - to(low))));
  const place = share * (stops.length - 1), before = Math.min(Math.floor(place), stops.length - 2);
  const fill = mixed(stops[before], stops[before + 1], place - before);
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(fill.slice(i, i + 2), 16));
  return { fill, ink: 0.3 * red + 0.59 * green + 0.11 * blue > 118 ? "#111" : "#fff" };
}

function barTicks(scale, height) {
  const places = scale.log ? [scale.range[0], 1, scale.range[1]] : ticksOf(scale, Math.min(5, height / 60));
  return places.map((at) => ({ at, text: number(Number(at.toPrecision(2))) }));
}

function colourBar(scale, left, height, letters) {
  const Y = scaleOf(scale, height, 0), parts = 48;
  const made = drawn("g", { class: "colour-bar" });
  for (let i = 0; i < parts; i++) {
    const y = (height * i) / parts;
    made.append(drawn("rect", { x: left, y, width: 11, height: height / parts + 0.6, fill: colourOf(scale, Y.back(y + height / parts / 2)).fill }));
  }
  for (const { at, text } of barTicks(scale, height)) {
    const y = Math.min(height - 5, Math.max(6, Y(at)));
    made.append(drawn("text", { x: left + 15, y, "dominant-baseline": "central", ...letters, "font-size": 11 }, text));
  }
  return made;
}
