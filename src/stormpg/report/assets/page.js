// ---- The page: controls, and a figure in each place that the page has for one

const within = (id) => document.getElementById(id);
const environments = (data.environments ?? []).map((content, index) => ({ content, index }));
const known = data.protocols ?? {};

/** Checkboxes that choose algorithms, which are the key to colours and dashes too. */
function chooser(id, names, hidden, changed) {
  const boxes = names.map((name, index) => {
    const label = checkbox(`${id}-algorithm-${index}`, name, true, (on) => (on ? hidden.delete(name) : hidden.add(name), changed()), swatch(lookOf(name)));
    label.addEventListener("pointerenter", () => highlight(name));
    label.addEventListener("pointerleave", () => highlight(null));
    return label;
  });
  const all = (on) => () => {
    for (const box of boxes) box.querySelector("input").checked = on;
    hidden.clear();
    if (!on) for (const name of names) hidden.add(name);
    changed();
  };
  const both = names.length > 5 ? [button("all", all(true)), button("none", all(false))] : [];
  return element("fieldset", {}, element("legend", {}, "Algorithms"), ...both, ...boxes);
}

// ---- Environments: one set of controls for all their figures

function learning() {
  const used = new Set(environments.flatMap(({ content }) => Object.values(content.algorithms ?? {}).flatMap(({ curves }) => Object.keys(curves ?? {}))));
  const labels = { ...Object.fromEntries([...used].map((key) => [key, { label: key }])), ...known };
  const first = used.has(data.first) ? data.first : Object.keys(labels).find((key) => used.has(key));
  const state = { hidden: new Set(), protocol: first, axis: "suits", seeds: false };
  const pairs = ({ improvement = [] }) => improvement.flatMap((pair) => [pair.x, pair.y]);
  const names = [...new Set(environments.flatMap(({ content }) => [...Object.keys(content.algorithms ?? {}), ...Object.keys(content.profiles?.algorithms ?? {}), ...pairs(content)]))];
  const draws = [];
  const controls = within("controls"), note = element("p", { class: "note" });
  const draw = () => draws.forEach((one) => one());
  const change = (key) => (value) => ((state[key] = value), draw());
  const shown = (content) => {
    const made = curves(content, state, labels);
    if (data.small) note.textContent = made.general;
    return made;
  };
  if (names.length) controls.append(chooser("curves", names, state.hidden, draw));
  if (used.size) {
    const options = Object.entries(labels).filter(([key]) => used.has(key)).map(([key, protocol]) => [key, protocol.label ?? key]);
    const axes = [["suits", "as suits the curves"], ["linear", "linear"], ["log", "logarithmic"]];
    controls.append(select("curves-protocol", "Protocol", options, state.protocol, change("protocol")), select("curves-axis", "x-axis", axes, state.axis, change("axis")));
    const single = environments.some(({ content }) => Object.values(content.algorithms ?? {}).some(({ runs }) => runs));
    if (single) controls.append(checkbox("curves-seeds", "show single seeds", false, change("seeds")));
  }
  controls.hidden = !controls.childElementCount;
  if (data.small) controls.after(note);
  for (const { content, index } of environments) {
    const id = `environment-${index}`, grid = within(`${id}-figures`), more = within(`${id}-more-figures`) ?? grid;
    const measured = Object.values(content.algorithms ?? {}).some(({ curves }) => curves && Object.keys(curves).length);
    const alone = data.small ? content.title ?? content.name : "Learning curves";
    if (measured) draws.push(figure(grid, `${id}-curves`, alone, () => shown(content), data.small ? "" : "wide"));
    if (content.profiles?.thresholds?.length) draws.push(figure(more, `${id}-profile`, "Performance profile", () => profile(content, state)));
    if (content.improvement?.length) draws.push(figure(more, `${id}-improvement`, "Probability of improvement", () => improvement(content, state)));
  }
}

function heatmaps(maps) {
  const state = { quantity: "final" };
  const scale = (map) => scaleFor(maps.filter(({ env }) => env === map.env), state.quantity);
  const draws = maps.map((map, index) => figure(within("heatmaps-figures"), `heatmap-${index}`, map.title ?? `${map.algorithm}, ${map.env}`, () => heatmap(map, state.quantity, scale(map))));
  const change = (value) => ((state.quantity = value), draws.forEach((draw) => draw()));
  within("heatmaps-controls").append(select("heatmaps-quantity", "Show", Object.entries(QUANTITIES), "final", change));
}

function variances(parts) {
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
    within("variance-figures").append(holder.firstChild);
  }
}

/** Charts of one section are shown together, and its maps share a colour scale. */
function charts(all) {
  for (const [index, title] of [...new Set(all.map((chart) => chart.section))].entries()) {
    const mine = all.filter((chart) => chart.section === title);
    mine.forEach((chart, place) => {
      const scale = () => scaleFor(mine.filter((other) => other.final && other.label === chart.label), "final", !chart.range);
      const build = chart.final ? () => heatmap(chart, "final", scale()) : chart.bars ? () => bars(chart) : () => lines(chart);
      figure(within(`charts-${index}-figures`), `charts-${index}-${place}`, chart.title, build, chart.wide ? "wide" : "");
    });
  }
}

function contents() {
  const nav = within("contents"), links = [...document.querySelectorAll("main section:has(> h2)")];
  nav.append(...links.map((one) => element("a", { href: `#${one.id}` }, one.querySelector("h2").textContent)));
  nav.hidden = links.length < 2;
}

if (environments.length) learning();
if (data.heatmaps?.length) heatmaps(data.heatmaps);
if (data.variance?.length) variances(data.variance);
if (data.charts?.length) charts(data.charts);
contents();
const redraw = () => drawings.forEach((one) => one());
redraw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
