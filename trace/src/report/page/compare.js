// Two sides, and platforms.

const interval = (of, show) => show(of.value) + (of.interval ? " [" + show(of.interval[0]) + " to " + show(of.interval[1]) + "]" : "");

function changed(ns) {
  if (Math.abs(ns) < 0.5) return "–";
  return element("span", { class: ns > 0 ? "up" : "down" }, (ns > 0 ? "+" : "") + time(ns));
}

/// Two bars from a middle line: by numbers of calls, and by cost.
function changeBar(change, most) {
  const width = 120, middle = width / 2, scale = (ns) => (Math.min(1, Math.abs(ns) / Math.max(1, most)) * middle);
  const rect = (ns, kind, y) => element("rect", { class: kind, x: ns < 0 ? middle - scale(ns) : middle, width: scale(ns), y, height: 7 });
  const text = "by numbers of calls: " + time(change.from_calls_ns) + "\nby cost: " + time(change.from_cost_ns);
  return element("svg", { width, height: 18, viewBox: `0 0 ${width} 18`, tip: text },
    rect(change.from_calls_ns, "device", 1), rect(change.from_cost_ns, "queue", 10),
    element("line", { class: "axis strong", x1: middle, x2: middle, y1: 0, y2: 18 }));
}

/// With one run on each side, costs are told by the median call as well: `medians`.
function changeTable(rows, { medians, ...options }) {
  const most = Math.max(1, ...rows.flatMap((row) => [Math.abs(row.from_calls_ns), Math.abs(row.from_cost_ns)]));
  const verdict = (of) => ({ differs: "yes", same: "no", unknown: "?" })[of];
  const calls = (title, of) => [title, (row) => element("span", { tip: interval(of(row).calls, count) }, orDash(of(row).calls.value, count)), (row) => of(row).calls.value];
  const mean = (title, of) => [title, (row) => orDash(of(row).mean_ns, time), (row) => of(row).mean_ns];
  const median = (title, of) => [title, (row) => element("span", { tip: interval(of(row).cost_ns, time) }, orDash(of(row).cost_ns.value, time)), (row) => of(row).cost_ns.value];
  const a = (row) => row.a, b = (row) => row.b;
  return table([
    ["", (row) => row.name, (row) => row.name, "word name"],
    calls("calls A", a), calls("calls B", b),
    ["calls differ", (row) => verdict(row.calls), (row) => row.calls, "word"],
    ...(medians ? [median("median A", a), median("median B", b), ["median differs", (row) => verdict(row.cost), (row) => row.cost, "word"]] : []),
    mean("mean A", a), mean("mean B", b),
    ...(medians ? [] : [["mean differs", (row) => verdict(row.cost), (row) => row.cost, "word"]]),
    ["change", (row) => changed(row.awake_change_ns), (row) => Math.abs(row.awake_change_ns)],
    ["by calls", (row) => changed(row.from_calls_ns), (row) => Math.abs(row.from_calls_ns)],
    ["by cost", (row) => changed(row.from_cost_ns), (row) => Math.abs(row.from_cost_ns)],
    ["", (row) => changeBar(row, most), null, "word"],
  ], rows, options);
}

function diffSections(diff) {
  const key = element("div", { class: "legend" }, element("span", {}, element("i", { class: "device" }), "by calls: they are made more or less often"), element("span", {}, element("i", { class: "queue" }), "by cost: the mean call costs more or less"));
  const few = Math.min(diff.a.runs, diff.b.runs), single = diff.a.runs === 1 && diff.b.runs === 1;
  const note = few >= 6 ? "Medians of runs, without sleep. What differs has intervals of 95 % that do not touch." :
    single ? "One run each, without sleep. How much the numbers change from run to run is not known." :
      "Fewer than 6 runs: medians without intervals.";
  const order = "Those whose time changed most come first. mean: the time without sleep, for each call.";
  const of_medians = " median: of single calls, with their sleep; they differ where intervals of 95 % do not touch. A few long calls can have the mean change the other way.";
  return [
    section("What changed from A to B, by class", note, key, changeTable([...diff.subclasses.filter((row) => row.class === "os"), ...diff.classes, diff.total], { sums: (row) => !row.subclass, limit: 99 })),
    section("Calls", order + (single ? of_medians : ""), changeTable(diff.calls, { limit: 25, medians: single })),
  ];
}

function sides(list) {
  const most = Math.max(1, ...list.map((side) => (side.lasted_ns.interval ? side.lasted_ns.interval[1] : side.lasted_ns.value)));
  const width = 250, place = (ns) => 4 + (ns / most) * (width - 12);
  const drawn = (side) => element("svg", { width, height: 18, viewBox: `0 0 ${width} 18`, tip: interval(side.lasted_ns, time) },
    element("rect", { class: "cpu", x: 4, y: 4, width: Math.max(1, place(side.lasted_ns.value) - 4), height: 10 }),
    side.lasted_ns.interval ? element("line", { class: "interval", x1: place(side.lasted_ns.interval[0]), x2: place(side.lasted_ns.interval[1]), y1: 9, y2: 9 }) : null);
  return table([
    ["", (side) => side.name, null, "word name"],
    ["runs", (side) => count(side.runs)],
    ["took", (side) => interval(side.lasted_ns, time)],
    ["", drawn, null, "word"],
    ["calls", (side) => count(side.total.calls.value)],
    ["without sleep", (side) => time(side.total.awake_ns.value)],
    ["on a CPU", (side) => orDash(side.total.cpu_ns.value, time)],
    ["device", (side) => orDash(side.total.io_wait_ns.value, time)],
  ], list, { limit: 99 });
}

function diffPage(diff) {
  document.title = diff.a.name + " and " + diff.b.name + " – holdfast trace";
  const letter = (name, side) => ({ ...side, name: name + ": " + side.name });
  return [element("h1", {}, commandOf(diff.b.source)), section("Both sides", null, sides([letter("A", diff.a), letter("B", diff.b)])), crossingChangeSection(diff), ...diffSections(diff)];
}

/// The study's comparison: for each class, the time of each platform.
function platformBars(matrix) {
  const rows = [...matrix.platforms[0].classes.map((row, index) => ({ title: CLASSES[row.class], of: (one) => one.classes[index].figures })),
    ...matrix.platforms[0].subclasses.filter((row) => !["metadata", "user-data"].includes(row.subclass)).map((row) => ({ title: SUBCLASSES[row.subclass], of: (one) => (one.subclasses.find((other) => other.subclass === row.subclass) || {}).figures }))];
  const hold = element("div");
  const draw = (key) => {
    const value = (figures) => (figures ? figures[key] : { value: 0, interval: null });
    const most = Math.max(1, ...rows.flatMap((row) => matrix.platforms.map((one) => (value(row.of(one)).interval || [0, value(row.of(one)).value])[1])));
    const width = 360, place = (ns) => (ns / most) * (width - 8);
    const drawn = (of) => element("svg", { width, height: 16, viewBox: `0 0 ${width} 16`, tip: interval(of, time) },
      element("rect", { class: "cpu", x: 0, y: 3, width: Math.max(of.value > 0 ? 1 : 0, place(of.value)), height: 10 }),
      of.interval ? element("line", { class: "interval", x1: place(of.interval[0]), x2: place(of.interval[1]), y1: 8, y2: 8 }) : null);
    const lines = rows.flatMap((row) => matrix.platforms.map((one, index) => ({ title: index ? "" : row.title, platform: one.name, of: value(row.of(one)) })));
    hold.replaceChildren(table([
      ["", (line) => line.title, null, "word"],
      ["platform", (line) => line.platform, null, "word name"],
      ["time", (line) => orDash(line.of.value, time)],
      ["", (line) => drawn(line.of), null, "word"],
    ], lines, { limit: 999 }));
  };
  draw("awake_ns");
  return section("Classes on each platform", "Medians, with the interval of 95 % as a line.", choice([["awake_ns", "without sleep"], ["wall_ns", "all time"], ["cpu_ns", "on a CPU"], ["io_wait_ns", "for devices"]], "awake_ns", draw), hold);
}

function matrixPage(matrix) {
  document.title = commandOf(matrix.platforms[0].source) + " – holdfast trace";
  const hold = element("div");
  const draw = (index) => hold.replaceChildren(...diffSections(matrix.comparisons[index]));
  const parts = [element("h1", {}, commandOf(matrix.platforms[0].source)), section("Platforms", matrix.notes.join(" "), sides(matrix.platforms)), platformBars(matrix)];
  if (matrix.comparisons.length) {
    draw(0);
    parts.push(section("Against " + matrix.platforms[0].name, "A is " + matrix.platforms[0].name + ".", choice(matrix.comparisons.map((diff, index) => [index, diff.b.name]), 0, draw)), hold);
  }
  return parts;
}
