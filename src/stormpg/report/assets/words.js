"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// ---- Numbers and words

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: "min2" });

function number(value) {
  if (typeof value !== "number") return value ?? "–";
  const size = Math.abs(value);
  const shown = size && (size < 1e-4 || size >= 1e7) ? Number(value.toPrecision(3)).toExponential() : digits.format(value);
  return shown.replaceAll("-", "−").replaceAll(",", "\u202f");
}

const interval = (estimate, low, high) => `${number(estimate)}\u00a0[${number(low)},\u00a0${number(high)}]`;
const percent = (share) => `${number(Math.round(1000 * share) / 10)} %`;
const short = (words, most = 24) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);
const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** The numbers of an axis: if they are all powers of ten and far from one, with superscripts. */
function onAxis(values) {
  const powers = values.map((value) => Math.log10(value));
  const far = powers.some((power) => power >= 5 || power <= -4);
  if (!far || powers.some((power) => Math.abs(power - Math.round(power)) > 1e-9)) return values.map(number);
  return powers.map((power) => `10${[...String(Math.round(power))].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("")}`);
}

// ---- Elements; strings among the children become text, never markup

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function button(name, pressed) {
  const made = element("button", { type: "button" }, name);
  made.addEventListener("click", pressed);
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
