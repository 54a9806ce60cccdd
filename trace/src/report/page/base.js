"use strict";
// Numbers, elements and bars that all pages share. What a traced program named is only ever set as text.

const PARTS = [
  ["cpu_ns", "cpu", "on a CPU"],
  ["sleep_ns", "sleep", "asleep"],
  ["wait_ns", "wait", "waiting, not for a device"],
  ["io_wait_ns", "device", "waiting for a device"],
  ["queue_ns", "queue", "ready, others had the CPUs"],
  ["untold_ns", "untold", "not told apart by the source"],
];
const CLASSES = { os: "OS related", metadata: "Metadata related", data: "User data related" };
const SUBCLASSES = {
  process: "Process/Thread", memory: "Memory", sync: "Synchronization", signal: "Signal", socket: "Socket",
  "file-object": "File object", system: "System", metadata: "Metadata", "user-data": "User data", "async-io": "Asynchronous I/O",
};

function time(ns) {
  if (ns === null || ns === undefined) return "–";
  const sign = ns < 0 ? "−" : "";
  ns = Math.abs(ns);
  if (ns < 999.5) return sign + Math.round(ns) + " ns";
  for (const [size, unit] of [[1e3, "µs"], [1e6, "ms"], [1e9, "s"]]) {
    const value = ns / size;
    if (value < 999.5 || unit === "s") return sign + value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + unit;
  }
}
const orDash = (value, show) => (value ? show(value) : "–");
const count = (value) => Math.round(value).toLocaleString("en");
const percent = (value) => (value === 0 ? "–" : Math.abs(value) < 0.005 ? "<0.01 %" : value.toFixed(2) + " %");
function bytes(value) {
  if (!value) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (value >= 1023.5 && unit < 6) { value /= 1024; unit += 1; }
  return (unit === 0 ? value : value.toFixed(value < 99.95 ? 1 : 0)) + " " + units[unit];
}

function element(name, attributes, ...children) {
  const svg = ["svg", "g", "rect", "line", "text", "path"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "tip") tipOf(made, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const tip = document.getElementById("tip");
function tipOf(of, text) {
  of.addEventListener("pointermove", (event) => {
    tip.textContent = typeof text === "function" ? text() : text;
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
    tip.style.top = Math.max(4, event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18) + "px";
  });
  of.addEventListener("pointerleave", () => { tip.hidden = true; });
}

function split(time_of) {
  return PARTS.filter(([key]) => time_of[key] > 0).map(([key, , title]) => title + ": " + time(time_of[key])).join("\n");
}

/// A bar of the parts of a time; `whole_ns` is the full width. Without sleep, that part is left out.
function bar(time_of, whole_ns, awake) {
  const parts = PARTS.filter(([key]) => time_of[key] > 0 && !(awake && key === "sleep_ns"));
  const piece = ([key, kind]) => element("i", { class: kind, style: "width:" + (100 * time_of[key]) / Math.max(1, whole_ns) + "%" });
  return element("div", { class: "bar", tip: split(time_of) }, parts.map(piece));
}

function legend(times) {
  const used = PARTS.filter(([key]) => times.some((one) => one[key] > 0));
  return element("div", { class: "legend" }, used.map(([, kind, title]) => element("span", {}, element("i", { class: kind }), title)));
}

function section(title, note, ...children) {
  return element("section", {}, element("h2", {}, title), note ? element("p", { class: "note" }, note) : null, ...children);
}

function choice(options, chosen, pick) {
  const buttons = options.map(([value, title]) => element("button", {
    "aria-pressed": String(value === chosen),
    onclick: () => {
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(options[index][0] === value)));
      pick(value);
    },
  }, title));
  return element("div", { class: "switch" }, buttons);
}

/// A picture that is drawn anew for each width, so that its labels keep their size.
function chart(draw, width_max = Infinity) {
  const hold = element("div", { class: "chart" });
  let drawn = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.min(Math.round(entry.contentRect.width), width_max);
    if (width && width !== drawn) { drawn = width; hold.replaceChildren(draw(width)); }
  }).observe(hold);
  return hold;
}

/// A label on an axis from `left` to `width`: at the ends it stays within.
const anchor = (x, left, width, half = 26) => (x - half < left ? "start" : x + half > width ? "end" : "middle");

/// A table that sorts by a click on its header. A column: title, how a cell shows, by what it sorts, whether it is words.
function table(columns, rows, { pick, chosen, sums, limit = 25, sorted = -1 } = {}) {
  const body = element("tbody");
  let order = sorted, ascending = false, all = rows.length <= limit;
  const more = element("button", { class: "more", onclick: () => { all = true; draw(); } });
  const heads = columns.map(([title, , key, word], index) => element("th", { class: word ? "word" : null },
    key ? element("button", { onclick: () => { ascending = order === index ? !ascending : Boolean(word); order = index; draw(); } }, title) : title));
  // Where a row is a card there is no header to click on.
  const by = element("select", { onchange: () => { order = Number(by.value); ascending = Boolean(columns[order] && columns[order][3]); draw(); } },
    sorted < 0 ? element("option", { value: -1 }, "importance") : null,
    columns.map(([title, , key], index) => (key && title ? element("option", { value: index }, title) : null)));
  const sorter = by.children.length > 2 ? element("label", { class: "sorter" }, "sorted by ", by) : null;
  function draw() {
    by.value = String(order);
    const shown = rows.slice();
    if (order >= 0) {
      const key = columns[order][2];
      const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
      shown.sort((a, b) => (ascending ? 1 : -1) * compare(key(a), key(b)));
    }
    heads.forEach((head, index) => index === order ? head.setAttribute("aria-sort", ascending ? "ascending" : "descending") : head.removeAttribute("aria-sort"));
    body.replaceChildren(...shown.slice(0, all ? shown.length : limit).map((row) => {
      const line = element("tr", { class: [sums && sums(row) ? "sum" : "", pick ? "pick" : "", chosen && chosen() === row ? "chosen" : ""].join(" ") },
        columns.map(([title, cell, , word]) => {
          const is = cell(row);
          return element("td", { class: [(typeof word === "function" ? word(row) : word) || "", is === "–" ? "none" : ""].join(" "), "data-title": title }, is);
        }));
      if (pick) line.addEventListener("click", () => { pick(row); draw(); });
      return line;
    }));
    more.hidden = all;
    more.textContent = "Show all " + count(rows.length);
  }
  draw();
  return element("div", {}, sorter, element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, heads)), body)), more);
}
