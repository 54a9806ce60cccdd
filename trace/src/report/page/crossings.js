// What crosses sandboxes: of one trace, and of two.

const KINDS = { wasm: "WebAssembly", native: "native" };
const BY = { import: "", message: " (message)", filter: "", supervisor: " (supervisor)" };
const WHEN = {
  "start-up": "before the first call", between: "between calls",
  "tear-down": "after the last call", "other-threads": "other threads of the host",
};
const perCall = (value, calls) => (calls ? (value / calls).toFixed(1) : "–");
const listed = (rows) => rows.map((row) => count(row.calls) + " " + row.name + ", " + time(row.wall_ns)).join("\n");
const sumOf = (rows, key) => rows.reduce((sum, row) => sum + row[key], 0);

function crossingRows(applet) {
  return applet.functions.flatMap((one) => [
    { strong: true, title: one.name, calls: one.calls, of: one.calls, crossings: one.crossings, ns: one.crossings_ns, kernel: one.kernel_calls, kernel_ns: one.kernel_ns, tip: count(one.crossings_min) + " to " + count(one.crossings_max) + " crossings in a call" },
    ...one.crossed.map((row) => ({ title: row.name + BY[row.by], of: one.calls, crossings: row.crossings, ns: row.wall_ns, kernel: sumOf(row.kernel, "calls"), kernel_ns: sumOf(row.kernel, "wall_ns"), tip: listed(row.kernel) })),
    ...(one.host.length ? [{ title: "in no crossing", of: one.calls, kernel: sumOf(one.host, "calls"), kernel_ns: sumOf(one.host, "wall_ns"), tip: listed(one.host) }] : []),
  ]);
}

function crossingSection(report) {
  const crossings = report.crossings;
  if (!crossings) return null;
  const tables = crossings.applets.map((applet) => element("div", {},
    element("p", {}, element("b", {}, applet.name), " – " + KINDS[applet.kind] + (applet.started > 1 ? ", started " + count(applet.started) + " times" : "")),
    table([
      ["", (row) => row.title, null, (row) => (row.strong ? "word name" : "word name inner")],
      ["calls", (row) => orDash(row.calls, count)],
      ["crossings", (row) => orDash(row.crossings, count)],
      ["per call", (row) => (row.crossings === undefined ? "–" : perCall(row.crossings, row.of))],
      ["time", (row) => orDash(row.ns, time)],
      ["host to kernel", (row) => element("span", row.tip ? { tip: row.tip } : {}, orDash(row.kernel, count))],
      ["per call", (row) => perCall(row.kernel, row.of)],
      ["time", (row) => orDash(row.kernel_ns, time)],
    ], crossingRows(applet), { sums: (row) => row.strong, limit: 40 })));
  const outside = crossings.outside.length ? table([
    ["system calls of the host outside of calls", (row) => WHEN[row.when], null, "word"],
    ["number", (row) => element("span", { tip: listed(row.kernel) }, count(row.kernel_calls))],
    ["time", (row) => time(row.kernel_ns)],
  ], crossings.outside, { limit: 9 }) : null;
  const own = crossings.own_calls ? ["The record of this took " + count(crossings.own_calls) + " system calls of the host, which are not in here."] : [];
  const lines = [...own, ...crossings.notes].map((line) => element("li", {}, line));
  return section("Crossings", "From the applet to its host, or to the kernel, in each call; and from the host to the kernel meanwhile.", tables, outside, element("ul", {}, lines));
}

function crossingChangeSection(diff) {
  const changes = diff.crossings;
  if (!changes) return null;
  const each = (of) => (of.calls.value ? of.crossings_per_call.value.toFixed(1) : "–");
  const number = (of, show) => element("span", of.interval ? { tip: interval(of, show) } : {}, orDash(of.value, show));
  const rows = changes.rows.map((row) => ({ strong: row.crossed === null, title: row.crossed === null ? row.function : row.crossed + BY[row.by], ...row }));
  return section("Crossings", null, table([
    ["", (row) => row.title, null, (row) => (row.strong ? "word name" : "word name inner")],
    ["crossings A", (row) => number(row.a.crossings, count)], ["B", (row) => number(row.b.crossings, count)],
    ["per call A", (row) => each(row.a)], ["B", (row) => each(row.b)],
    ["host to kernel A", (row) => number(row.a.kernel_calls, count)], ["B", (row) => number(row.b.kernel_calls, count)],
    ["time A", (row) => number(row.a.crossings_ns, time)], ["B", (row) => number(row.b.crossings_ns, time)],
  ], rows, { sums: (row) => row.strong, limit: 40 }), changes.outside.length ? table([
    ["system calls of the host outside of calls", (row) => WHEN[row.when], null, "word"],
    ["A", (row) => number(row.a, count)], ["B", (row) => number(row.b, count)],
  ], changes.outside, { limit: 9 }) : null, element("ul", {}, changes.notes.map((line) => element("li", {}, line))));
}
