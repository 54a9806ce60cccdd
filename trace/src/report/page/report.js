// One trace.

function commandOf(source) {
  if (source.command.length) return source.command.map((word) => (/^[\w./:=,+@%-]+$/.test(word) ? word : "'" + word + "'")).join(" ");
  return source.attached.length ? "process " + source.attached.join(", ") : "a trace";
}

const called = (row) => row.name + (row.abi === "x86_64" ? "" : " (" + row.abi + ")");

function facts(report) {
  const { total, source } = report, incomplete = source.incomplete || [];
  const fact = (value, title, alarm) => element("div", { class: "fact" + (alarm ? " alarm" : "") }, element("b", {}, value), element("span", {}, title));
  const share = total.time.wall_ns ? (100 * total.awake_ns) / total.time.wall_ns : 0;
  return element("div", { class: "facts" },
    fact(time(source.lasted_ns), "from begin to end"),
    fact(count(total.calls), "system calls"),
    fact(time(total.time.wall_ns), "in calls, over all threads"),
    fact(time(total.awake_ns), "of that without sleep (" + share.toFixed(share < 10 ? 1 : 0) + " %)"),
    fact(time(total.time.cpu_ns), "of that on a CPU"),
    source.events_lost ? fact(count(source.events_lost), "events lost", true)
      : incomplete.length ? null : fact("0", "events lost"),
    incomplete.length ? fact(source.events_missing ? count(source.events_missing) : "?", "events missing", true) : null);
}

function classSection(report) {
  const hold = element("div");
  const draw = (awake) => {
    const whole = (sums) => (awake ? sums.awake_ns : sums.time.wall_ns);
    const largest = Math.max(1, ...report.classes.map((row) => whole(row.sums)));
    const rows = [
      ...report.subclasses.filter((row) => row.class === "os").map((row) => ({ title: SUBCLASSES[row.subclass], ...row })),
      ...report.classes.map((row) => ({ title: CLASSES[row.class], strong: true, ...row })),
    ];
    hold.replaceChildren(legend(rows.map((row) => row.sums.time)), table([
      ["", (row) => row.title, null, (row) => (row.strong ? "word" : "word inner")],
      ["kinds", (row) => orDash(row.sums.distinct, count)],
      ["calls", (row) => orDash(row.sums.calls, count)],
      ["% of calls", (row) => percent(row.sums.calls_percent)],
      [awake ? "% without sleep" : "% of time", (row) => percent(awake ? row.sums.awake_percent : row.sums.time_percent)],
      ["time", (row) => orDash(whole(row.sums), time)],
      ["", (row) => bar(row.sums.time, largest, awake), null, "word"],
      ["errors", (row) => orDash(row.sums.errors, count)],
      ["in", (row) => bytes(row.sums.bytes_in)],
      ["out", (row) => bytes(row.sums.bytes_out)],
    ], rows, { sums: (row) => row.strong, limit: 99 }));
  };
  draw(false);
  const how = report.scheme === "paper" ? "Calls are in classes by their names." : "Calls are in classes by their arguments and descriptors.";
  const rule = report.sleep === "measured" ? " Sleep is as it was measured." : " Sleep is by the rule of Dubeyko et al., 2017: long waits count as sleep in whole.";
  return section("Where the time went, by class", how + rule, choice([[false, "all time"], [true, "without sleep"]], false, draw), hold);
}

/// Calls over their length; the length of a bar is their number, its colours are what their time was spent on.
function histogram(call, width) {
  const { bars } = call.distribution;
  const height = 214, left = 52, bottom = 36, top = 24;
  const log = Math.max(...bars.map((one) => one.calls)) > 200;
  const scale = (value) => (log ? Math.log10(value + 1) : value);
  const most = Math.max(1, ...bars.map((one) => scale(one.calls)));
  const step = (width - left) / bars.length;
  const y = (value) => height - bottom - (scale(value) / most) * (height - bottom - top);
  const parts = [];
  const ticks = log ? [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].filter((tick) => scale(tick) <= most) : [0, 0.5, 1].map((part) => Math.round(part * most));
  for (const tick of new Set(ticks)) {
    parts.push(element("line", { class: "axis", x1: left, x2: width, y1: y(tick), y2: y(tick) }));
    parts.push(element("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, count(tick)));
  }
  const every = Math.max(1, Math.ceil((bars.length * 62) / (width - left)));
  bars.forEach((one, index) => {
    const x = left + index * step;
    let at = height - bottom;
    const full = at - y(one.calls);
    for (const [key, kind] of PARTS) {
      const part = (one.time[key] / Math.max(1, one.time.wall_ns)) * full;
      if (part > 0) { at -= part; parts.push(element("rect", { class: kind, x: x + 1, width: Math.max(1, step - 2), y: at, height: part })); }
    }
    if (index % every === 0 && x + step < width - 26) parts.push(element("text", { x: x + step, y: height - bottom + 15, "text-anchor": "middle" }, time(one.below_ns)));
    parts.push(element("rect", {
      class: "hit", x, width: step, y: top, height: height - bottom - top,
      tip: count(one.calls) + " calls of less than " + time(one.below_ns) + "\n" + split(one.time),
    }));
  });
  parts.push(element("line", { class: "axis strong", x1: left, x2: width, y1: height - bottom, y2: height - bottom }));
  parts.push(element("text", { x: width, y: height - 4, "text-anchor": "end" }, "length of a call"));
  parts.push(element("text", { x: 0, y: 12 }, log ? "number of calls (logarithmic)" : "number of calls"));
  return element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "histogram of " + called(call) }, parts);
}

function distribution(call) {
  const { p50_ns, p90_ns, p99_ns, max_ns } = call.distribution;
  return element("div", {},
    element("p", {}, element("b", {}, called(call)), " – " + count(call.calls ?? call.sums.calls) + " calls; half took " + time(p50_ns) + " at most, 90 % " + time(p90_ns) + ", 99 % " + time(p99_ns) + "; the longest " + time(max_ns)),
    chart((width) => histogram(call, width), 860));
}

function callSection(report) {
  const rows = report.calls.map((row) => ({ ...row, sums: row.sums || row }));
  let chosen = rows.find((row) => row.distribution);
  const hold = element("div");
  const show = () => hold.replaceChildren(...(chosen && chosen.distribution ? [legend(chosen.distribution.bars.map((one) => one.time)), distribution(chosen)] : []));
  show();
  const at = (key) => (row) => (row.distribution ? row.distribution[key] : -1);
  const quantile = (title, key) => [title, (row) => (row.distribution ? time(row.distribution[key]) : "–"), at(key)];
  const errors = (row) => row.errors_by_code.map((error) => error.name + " " + count(error.calls)).join("\n");
  const list = element("div");
  const draw = (awake) => {
    const whole = (row) => (awake ? row.sums.awake_ns : row.sums.time.wall_ns);
    const most = Math.max(1, ...rows.map(whole));
    list.replaceChildren(table([
      ["call", called, (row) => row.name, "word name"],
      ["part", (row) => SUBCLASSES[row.subclass], (row) => row.subclass, "word"],
      ["calls", (row) => count(row.sums.calls), (row) => row.sums.calls],
      [awake ? "without sleep" : "time", (row) => orDash(whole(row), time), whole],
      ["%", (row) => percent(awake ? row.sums.awake_percent : row.sums.time_percent), whole],
      ["", (row) => bar(row.sums.time, most, awake), null, "word"],
      quantile("p50", "p50_ns"), quantile("p90", "p90_ns"), quantile("p99", "p99_ns"), quantile("max", "max_ns"),
      ["errors", (row) => (row.sums.errors ? element("span", { tip: errors(row) }, count(row.sums.errors)) : "–"), (row) => row.sums.errors],
    ], rows, { pick: (row) => { chosen = row; show(); }, chosen: () => chosen, sorted: 3 }));
  };
  draw(false);
  return section("Calls", "A click on a call shows how long it took; a click on a column sorts by it.", hold,
    choice([[false, "all time"], [true, "without sleep"]], false, draw), list);
}

/// A lane for each thread: what its calls did when. Between calls it ran its own code, or was not on. Its name stands
/// beside it, or above it where there is little room.
function lanes(report, threads, width) {
  const bins = Math.max(...threads.map((row) => row.lane[row.lane.length - 1].bin)) + 1;
  const narrow = width < 560;
  const left = narrow ? 0 : 190, lane = 20, row_height = narrow ? lane + 16 : lane, bottom = 24;
  const height = threads.length * row_height + bottom;
  const step = (width - left) / bins;
  const letters = narrow ? Math.floor(width / 7) : 26;
  const kinds = [["cpu_ns", "cpu"], ["asleep_ns", "sleep"], ["device_ns", "device"], ["queue_ns", "queue"]];
  const parts = [];
  threads.forEach((row, index) => {
    const top = index * row_height, y = top + row_height - lane;
    const label = (row.thread ? row.thread + " " : "") + (row.command || "?");
    const short = label.length > letters ? label.slice(0, letters - 1) + "…" : label;
    parts.push(narrow ? element("text", { x: 0, y: top + 13 }, short) : element("text", { x: left - 8, y: y + 14, "text-anchor": "end" }, short));
    parts.push(element("line", { class: "axis", x1: left, x2: width, y1: y + lane - 2, y2: y + lane - 2 }));
    for (const one of row.lane) {
      let at = y + lane - 2;
      for (const [key, kind] of kinds) {
        const part = Math.min(1, one[key] / report.lane_bin_ns) * (lane - 4);
        if (part > 0.05) { at -= part; parts.push(element("rect", { class: kind, x: left + one.bin * step, width: step + 0.2, y: Math.max(y, at), height: part })); }
      }
    }
    parts.push(element("rect", {
      class: "hit", x: left, width: width - left, y, height: lane,
      tip: label + ": " + count(row.calls) + " calls, " + time(row.time.wall_ns) + "\n" + split(row.time) + (row.end ? "\n" + row.end : ""),
    }));
  });
  const ticks = Math.max(2, Math.min(8, Math.floor((width - left) / 90)));
  for (let tick = 0; tick <= ticks; tick += 1) {
    const x = left + ((width - left) * tick) / ticks;
    parts.push(element("text", { x, y: height - 6, "text-anchor": anchor(x, left, width) }, time((bins * report.lane_bin_ns * tick) / ticks)));
  }
  return element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "threads over time" }, parts);
}

function laneSection(report) {
  const threads = report.threads.filter((row) => row.lane.length).slice(0, 60);
  if (!threads.length) return null;
  const note = (report.threads.length > threads.length ? "The " + threads.length + " busiest of " + count(report.threads.length) + ". " : "") +
    "How full a lane is at a moment is how much of it the thread spent in calls; where it is empty, it ran its own code or was not there.";
  return section("Threads over time", note, legend(threads.map((row) => row.time)), chart((width) => lanes(report, threads, width)));
}

function threadSection(report) {
  const most = Math.max(1, ...report.threads.map((row) => row.time.wall_ns));
  const own = (row) => (row.thread_cpu_ns === null ? 0 : Math.max(0, row.thread_cpu_ns - row.time.cpu_ns));
  const columns = (name) => [
    name,
    ["calls", (row) => count(row.calls), (row) => row.calls],
    ["errors", (row) => orDash(row.errors, count), (row) => row.errors],
    ["in calls", (row) => time(row.time.wall_ns), (row) => row.time.wall_ns],
    ["", (row) => bar(row.time, most), null, "word"],
    ["without sleep", (row) => orDash(row.awake_ns, time), (row) => row.awake_ns],
    ["own code", (row) => orDash(own(row), time), own],
  ];
  const thread = ["thread", (row) => (row.thread ? row.thread + " " : count(row.threads) + " ") + row.command, (row) => row.thread, "word name"];
  const process = ["process", (row) => (row.process || count(row.processes)) + " " + row.command + (row.threads > 1 ? " (" + count(row.threads) + " threads)" : ""), (row) => row.process, "word name"];
  const hold = element("div");
  const draw = (which) => hold.replaceChildren(which === "threads"
    ? table([...columns(thread), ["end", (row) => row.end || "–", null, "word"]], report.threads, { limit: 15 })
    : table(columns(process), report.processes, { limit: 15 }));
  draw("processes");
  return section("Processes and threads", null, choice([["processes", "processes"], ["threads", "threads"]], "processes", draw), hold);
}

function aboutSection(report) {
  const { source } = report;
  const lines = [...(source.incomplete || [])];
  if (source.backend) lines.push("Measured with " + source.backend + (source.version ? ", holdfast " + source.version : "") + (source.began_unix_ns ? ", " + new Date(source.began_unix_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "") + ".");
  if (source.cost_per_call_ns !== null) lines.push("Measuring cost " + time(source.cost_per_call_ns) + " a call, " + time(source.cost_per_call_ns * report.total.calls) + " in all.");
  if (source.kernel) lines.push("Linux " + source.kernel + ", clock " + source.clock + ", " + source.cpus + " CPUs" + (source.pinned === null ? "" : ", pinned to " + source.pinned) + "; files in memory: " + source.cache + ".");
  source.file_systems.forEach((one) => lines.push("File system: " + one));
  if (report.signals.length) lines.push("Signals: " + report.signals.map((one) => count(one.count) + " " + one.name).join(", "));
  if (report.io_uring.length) lines.push("Operations of io_uring, which are no calls: " + report.io_uring.map((one) => count(one.count) + " " + one.name).join(", "));
  if (report.lines_skipped) lines.push(count(report.lines_skipped) + " lines of the log could not be read.");
  lines.push(...source.notes);
  return section("About this trace", null, element("ul", {}, lines.map((line) => element("li", {}, line))));
}

function unfinishedSection(report) {
  if (!report.unfinished.length) return null;
  return section("Calls that had not returned", "When their thread or the trace ended.", table([
    ["thread", (row) => row.thread + " " + row.command, null, "word name"],
    ["call", (row) => row.name, null, "word name"],
    ["for", (row) => time(row.time.wall_ns)],
    ["on a CPU", (row) => orDash(row.time.cpu_ns, time)],
    ["asleep", (row) => orDash(row.time.sleep_ns + row.time.wait_ns, time)],
  ], report.unfinished, { limit: 10 }));
}

function reportPage(report) {
  // Sums are flat in the data; the tables want them apart.
  for (const rows of [report.classes, report.subclasses, report.calls]) rows.forEach((row) => { row.sums = row; });
  document.title = commandOf(report.source) + " – holdfast trace";
  return [element("h1", {}, commandOf(report.source)), facts(report), crossingSection(report), classSection(report), callSection(report), laneSection(report), threadSection(report), unfinishedSection(report), aboutSection(report)];
}
