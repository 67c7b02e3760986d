// ---- Reading a figure: values under the pointer, zoom, the key, a picture to save

const drawings = []; // functions that draw the figures again

/** A figure of the page. `build` returns its description: { x, y, marks, text, view, height, scale, labels, key }. */
function figure(parent, id, title, build, kind = "") {
  const plot = element("div", { id, class: "plot", role: "img" }), tip = element("div", { class: "tip", hidden: "" });
  const caption = element("figcaption", { id: `${id}-caption`, "aria-live": "polite" });
  const key = element("ul", { class: "key", "aria-hidden": "true" });
  let content, svg, zoom = {};
  const show = () => {
    plot.content = content; // for tests and for the curious
    if (!plot.clientWidth) return; // folded
    svg = draw(content, plot.clientWidth, plot.clientHeight, { zoom });
    tip.hidden = true;
    plot.replaceChildren(svg, tip);
    reset.hidden = !zoom.x;
    key.hidden = svg.labelled || !content.key;
  };
  const reset = button("reset zoom", () => ((zoom = {}), show()));
  const save = button("save", () => savePicture(content, title, zoom));
  save.setAttribute("aria-label", `Save ${title} as a picture`);
  reset.hidden = true;
  const update = () => {
    const before = content?.view;
    content = build();
    if (before !== content.view) zoom = {}; // other axes
    plot.style.height = content.height ? `${content.height}px` : "";
    caption.textContent = content.text;
    plot.setAttribute("aria-label", `${title}. ${content.spoken ?? content.text}`);
    key.replaceChildren(...keyOf(content).map(keyItem));
    show();
  };
  parent.append(element("figure", { class: kind }, element("div", { class: "head" }, element("h3", {}, title), reset, save), plot, key, caption));
  pointing(plot, tip, () => ({ content, svg }), (area) => ((zoom = area), show()));
  let width = 0;
  new ResizeObserver(() => plot.clientWidth !== width && ((width = plot.clientWidth), content && show())).observe(plot);
  drawings.push(update);
  return update;
}

const keyOf = ({ marks }) => marks.filter(({ kind, name, faint }) => kind === "line" && name && !faint);

function swatch(look, dots = "") {
  const line = dots === "only" ? drawn("circle", { cx: 15, cy: 6, r: 4, fill: look.colour }) : drawn("line", { x1: 0, x2: 30, y1: 6, y2: 6, stroke: look.colour, "stroke-width": Math.min(look.width, 4), "stroke-dasharray": dashes(look) });
  return drawn("svg", { width: 30, height: 12, "aria-hidden": "true" }, line);
}

const keyItem = ({ name, look, dots }) => element("li", {}, swatch(look, dots), name);

/** Fade all lines but those of one name; none if there is no name. */
function highlight(name, within = document) {
  for (const one of within.querySelectorAll("[data-name]")) one.classList.toggle("dim", name != null && one.dataset.name !== name);
}

/** What is under the pointer: where to mark it, a heading, and rows of name and words. */
function pointed({ marks, x: { title } }, { X, Y, bottom }, left, top) {
  const cells = marks.filter(({ kind }) => kind === "cell");
  const near = (mark) => Math.abs(Y(mark.y[0]) - top) + (cells.length ? Math.abs(X(mark.x[0]) - left) : 0);
  const rows = marks.filter(({ kind }) => ["cell", "reach", "bar"].includes(kind)).sort((a, b) => near(a) - near(b));
  if (rows.length) return { places: [], head: rows[0].name, rows: [{ words: rows[0].words }] };
  const lines = marks.filter(({ kind, name, faint }) => kind === "line" && name && !faint);
  const distance = (value) => Math.abs(X(value) - left);
  const found = lines.map((line) => {
    let best = -1;
    line.x.forEach((value, i) => line.y[i] != null && (best < 0 || distance(value) < distance(line.x[best])) && (best = i));
    return { line, best, at: best < 0 ? NaN : line.x[best] };
  }).filter(({ at }) => Number.isFinite(X(at)));
  const nearest = found.reduce((a, b) => (!a || distance(b.at) < distance(a.at) ? b : a), null);
  if (!nearest) return null;
  const shown = found.filter(({ at }) => Math.abs(X(at) - X(nearest.at)) < 3)
    .map(({ line, best }) => ({ name: line.name, look: line.look, words: line.words[best], place: [X(line.x[best]), Y(line.y[best])] }))
    .filter(({ place }) => Number.isFinite(place[1])).sort((a, b) => a.place[1] - b.place[1]);
  const closest = shown.reduce((a, b) => (!a || Math.abs(b.place[1] - top) < Math.abs(a.place[1] - top) ? b : a), null);
  const most = Math.max(4, Math.min(12, Math.round(bottom / 30))); // around the pointer
  const first = Math.max(0, Math.min(shown.indexOf(closest) - Math.floor(most / 2), shown.length - most));
  return { x: X(nearest.at), head: `${title}: ${number(nearest.at)}`, rows: shown.slice(first, first + most), closest };
}

/** The pointer over a figure: values, and an area to zoom into, drawn with the mouse. A double click shows everything. */
function pointing(plot, tip, current, zoomTo) {
  let start = null;
  const area = drawn("rect", { class: "area" }), marker = drawn("g", { class: "marker" });
  const inside = (event) => {
    const box = plot.getBoundingClientRect(), { frame } = current().svg;
    const [left, top] = [event.clientX - box.left - frame.left, event.clientY - box.top - frame.top];
    return { left: Math.min(frame.right, Math.max(0, left)), top: Math.min(frame.bottom, Math.max(0, top)), frame };
  };
  const leave = () => ((tip.hidden = true), marker.remove(), highlight(null, plot));
  plot.addEventListener("pointermove", (event) => {
    const { content, svg } = current(), { left, top, frame } = inside(event);
    if (start) {
      const [x, y] = [Math.min(left, start.left), Math.min(top, start.top)];
      for (const [key, value] of Object.entries({ x, y, width: Math.abs(left - start.left), height: Math.abs(top - start.top) })) area.setAttribute(key, value);
      svg.firstChild.append(area);
      return leave();
    }
    const found = pointed(content, frame, left, top);
    if (!found) return leave();
    marker.replaceChildren();
    if (found.x != null) marker.append(drawn("line", { x1: found.x, x2: found.x, y1: 0, y2: frame.bottom }));
    for (const { place, look } of found.rows) if (place) marker.append(drawn("circle", { cx: place[0], cy: place[1], r: 3.5, fill: look.colour }));
    svg.firstChild.append(marker);
    tip.replaceChildren(element("strong", {}, found.head), ...found.rows.map(({ name, look, words }) =>
      element("div", name === found.closest?.name ? { class: "near" } : {}, look ? swatch(look) : "", name ? `${short(name)} ${words}` : words)));
    tip.hidden = false;
    const beside = frame.left + (found.x ?? left) + 14, over = beside + tip.offsetWidth > plot.clientWidth;
    tip.style.left = `${Math.max(0, over ? beside - tip.offsetWidth - 28 : beside)}px`;
    tip.style.top = `${Math.max(0, Math.min(frame.top + top - 20, plot.clientHeight - tip.offsetHeight))}px`;
    if (found.closest) highlight(Math.abs(found.closest.place[1] - top) < 25 ? found.closest.name : null, plot);
  });
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("pointerdown", (event) => {
    const { content, svg } = current();
    if (event.pointerType !== "mouse" || event.button || content.x.ticks || content.y.ticks || !svg) return;
    start = inside(event);
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointerup", (event) => {
    if (!start) return;
    const { left, top, frame } = inside(event), from = start;
    start = null;
    area.remove();
    if (Math.abs(left - from.left) < 8 || Math.abs(top - from.top) < 8) return;
    const both = (a, b, scale) => [scale.back(a), scale.back(b)].sort((one, other) => one - other);
    zoomTo({ x: both(left, from.left, frame.X), y: both(top, from.top, frame.Y) });
  });
  plot.addEventListener("dblclick", () => zoomTo({}));
}

/** Save a figure as a PNG file, with its title and the names of its lines. */
function savePicture(content, title, zoom) {
  const [width, height] = [1100, Math.max(620, content.height ?? 0)], scale = 2;
  const svg = draw(content, width, height, { title, zoom });
  svg.prepend(drawn("rect", { width, height, fill: theme().card }));
  const picture = new Image(), canvas = element("canvas", { width: width * scale, height: height * scale });
  picture.addEventListener("load", () => {
    canvas.getContext("2d").drawImage(picture, 0, 0, width * scale, height * scale);
    element("a", { href: canvas.toDataURL("image/png"), download: "figure.png" }).click();
  });
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
}
