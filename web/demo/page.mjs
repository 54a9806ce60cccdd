// The interface of the demo: it asks the worker, and draws.
import { heapNames, keepStorage, removeHeap, storageState } from "../dist/index.js";
import { $, caption, milliseconds, number, onPress, shape } from "./draw.mjs";

/** The Web Lock that each tab of the demo has, with the others. */
const TAB = "holdfast-demo-tab";
/** How long the locks and handles of a worker that was ended are waited for. */
const RELEASE_MS = 3000;
/** After so long a start says what it may wait for. */
const SLOW_MS = 3000;
const SLOW = "Still starting: if another tab has the heap, this one goes on when that is closed …";

/** Why the programs of this worker take no questions: its script did not load. */
let broken;
let worker, lastId = 0, isStarted = false;
const waiting = new Map();
const commits = [];
/** When each page was stored last, by the number of the commit. */
const stored = new Map();
let commitCount = 0;

function begin() {
  broken = undefined;
  let hasSpoken = false;
  worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
  worker.onmessage = ({ data: { id, ok, error, commit, isOwner } }) => {
    hasSpoken = true;
    if (commit) return takeCommit(commit);
    if (isOwner) return takeOver();
    const asked = waiting.get(id);
    // It was given up.
    if (asked === undefined) return;
    waiting.delete(id);
    if (error) asked.failed(new Error(error));
    else asked.done(ok);
  };
  worker.onerror = ({ message }) => {
    // A script that does not load has no message.
    const why = message || "The programs did not start; reload the page.";
    if (!hasSpoken) broken = why;
    failAll(why);
  };
}

/** Ends the programs as a crash does: without a word. */
function end(why) {
  worker.onmessage = worker.onerror = null;
  worker.terminate();
  isStarted = false;
  failAll(why);
}

function failAll(why) {
  waiting.forEach(({ failed }) => failed(new Error(why)));
  waiting.clear();
}

function ask(step, rest = {}) {
  return new Promise((done, failed) => {
    if (broken !== undefined) return failed(new Error(broken));
    const id = ++lastId;
    waiting.set(id, { done, failed });
    worker.postMessage({ id, step, ...rest });
  });
}

function say(text, isFailure = false) {
  $("status").textContent = text;
  $("status").classList.toggle("failed", isFailure);
}

const button = (id, work) => onPress($(id), work, ({ message }) => say(message, true));

async function start() {
  const slow = setTimeout(say, SLOW_MS, SLOW);
  try {
    const { ms, counts, isOwner } = await ask("start");
    clearTimeout(slow);
    const { usedBytes, isPersistent } = await storageState();
    const lasting = isPersistent ? ", which the browser keeps" : "";
    const stores = usedBytes > 0 ? ` This site stores ${number(usedBytes / 2 ** 20)} MiB${lasting}.` : "";
    say(`${startWords(ms, counts, isOwner)}${stores}`);
    isStarted = true;
    showCounts(counts);
    await drawPages();
  } finally {
    clearTimeout(slow);
  }
}

function startWords(ms, counts, isOwner) {
  if (!isOwner) return `Another tab runs the classifier, and answered this one after ${milliseconds(ms)}.`;
  // No mails, and no words of any.
  if (counts.trim() === "0") {
    return `The classifier is ready after ${milliseconds(ms)}, with a new heap: what it learns is there at the next \
visit.`;
  }
  return `The classifier is back after ${milliseconds(ms)}.`;
}

/** The classifier runs in this tab from now on. */
function takeOver() {
  if (isStarted) say("This tab runs the classifier now, with all that was stored.");
  drawSoon();
}

function showCounts(counts) {
  const lines = counts.trim().split("\n");
  const words = Number(lines.pop());
  const mails = lines.map((line) => line.split("\t")).map(([name, count]) => `${count} of ${name}`);
  $("learnt").textContent = mails.length === 0 ? "It has learnt nothing yet."
    : `It has learnt mails: ${mails.join(", ")}; ${number(words)} words.`;
}

function bars(list, rows, unit) {
  const most = Math.max(...rows.map(({ value }) => value));
  const best = Math.min(...rows.map(({ value }) => value));
  list.replaceChildren(...rows.map(({ name, value, isBest }) => {
    const row = document.createElement("li");
    const [label, bar, text] = ["span", "span", "span"].map((tag) => document.createElement(tag));
    label.textContent = name;
    bar.className = "bar";
    bar.style.width = `${100 * value / most}%`;
    text.className = "value";
    text.textContent = unit(value);
    row.classList.toggle("best", isBest ?? value === best);
    row.append(label, bar, text);
    return row;
  }));
}

function takeCommit({ pages, findMs, storeMs }) {
  commitCount += 1;
  pages.forEach((page) => stored.set(page, commitCount));
  commits.push({ pages: pages.length, findMs, storeMs });
  if (commits.length > 160) commits.shift();
  drawSoon();
}

let isDrawing = false;
function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  setTimeout(async () => {
    await drawPages().catch(() => {});
    isDrawing = false;
  }, 150);
}

async function drawPages() {
  const { used } = await ask("pages");
  const { context, width, height, colour } = shape($("pages"), 0.25);
  if (used === undefined) {
    caption($("pages"), $("heap-figures"), "Another tab runs the classifier: its heap is drawn there.");
    return drawCommits();
  }
  // Whole pages where they fit, else several in a cell.
  const size = Math.max(4, Math.floor(Math.sqrt(width * height / Math.max(1, used.length))));
  const columns = Math.floor(width / size), rows = Math.floor(height / size);
  const perCell = Math.max(1, Math.ceil(used.length / (columns * rows)));
  const colours = { empty: colour("empty"), used: colour("used"), changed: colour("changed") };
  let usedPages = 0, lastPages = 0;
  for (let cell = 0; cell * perCell < used.length; cell++) {
    let kind = "empty";
    for (let page = cell * perCell; page < Math.min(used.length, (cell + 1) * perCell); page++) {
      if (used[page]) {
        usedPages += 1;
        if (kind === "empty") kind = "used";
      }
      if ((stored.get(page) ?? -Infinity) > commitCount - 10) {
        lastPages += 1;
        kind = "changed";
      }
    }
    context.fillStyle = colours[kind];
    context.fillRect(cell % columns * size, Math.floor(cell / columns) * size, size - 1, size - 1);
  }
  caption($("pages"), $("heap-figures"), `${number(usedPages)} of ${number(used.length)} pages of 4 KiB have a byte that is \
not zero, also where their objects were freed; the last ten commits stored ${number(lastPages)} that had changed.`);
  drawCommits();
}

function drawCommits() {
  const { context, width, height, colour } = shape($("commits"), 0.14);
  const times = commits.map(({ findMs, storeMs }) => findMs + storeMs);
  const most = Math.max(1, ...times);
  const step = width / 160;
  commits.forEach(({ findMs, storeMs }, index) => {
    const [found, whole] = [findMs / most * height, (findMs + storeMs) / most * height];
    context.fillStyle = colour("used");
    context.fillRect(index * step, height - whole, Math.max(1, step - 1), whole);
    context.fillStyle = colour("changed");
    context.fillRect(index * step, height - found, Math.max(1, step - 1), found);
  });
  const sorted = times.toSorted((one, other) => one - other);
  caption($("commits"), $("commit-figures"), times.length === 0
    ? "Commits of this visit will be drawn here, as bars: finding what changed, and storing it."
    : `${number(times.length)} commit${times.length === 1 ? "" : "s"}: half took \
${milliseconds(sorted[sorted.length >> 1])} or less, the longest \
${milliseconds(most)}; below, finding what changed, above, storing it.`);
}

button("check", async () => {
  say("The spell checker runs …");
  const { ms, isCold, report } = await ask("check", { text: $("text").value });
  $("spell-time").textContent = isCold ? `${milliseconds(ms)}, with building the tables` : `${milliseconds(ms)}, from the heap`;
  const unknown = JSON.parse(report).unknown ?? [];
  $("unknown").replaceChildren(...unknown.map(({ word, suggestion }) => {
    const item = document.createElement("li");
    const wrong = document.createElement("del");
    wrong.textContent = word;
    item.append(wrong, suggestion ? ` → ${suggestion}` : "");
    return item;
  }));
  say(unknown.length === 0 ? "All words are known." : `${unknown.length} unknown words.`);
});
button("learn", async () => {
  const { ms, counts } = await ask("learn", { category: $("category").value, text: $("mail").value });
  $("mail-time").textContent = `learnt and stored in ${milliseconds(ms)}`;
  showCounts(counts);
});
button("classify", async () => {
  const { ms, verdict } = await ask("classify", { text: $("mail").value });
  $("mail-time").textContent = `classified in ${milliseconds(ms)}`;
  const rows = verdict.trim().split("\n").filter((line) => line !== "").map((line) => line.split("\t"));
  bars($("verdict"), rows.map(([name, share], index) =>
    ({ name, value: Number(share), isBest: index === 0 })), (value) => `${(100 * value).toFixed(1)} %`);
});
button("feed", async () => {
  const { ms, counts } = await ask("feed", { count: 200 });
  $("feed-time").textContent = `${milliseconds(ms)}, ${milliseconds(ms / 200)} each`;
  showCounts(counts);
});
button("race", async () => {
  const words = Number($("words").value);
  $("race-figures").textContent = "the state is made …";
  const { heapBytes, jsonBytes } = await ask("race", { words, way: "keep" });
  const names = { heap: "Holdfast heap", opfsFile: "file, JSON", indexedDb: "IndexedDB, JSON", indexedDbMap: "IndexedDB, map" };
  const times = Object.fromEntries(Object.keys(names).map((way) => [way, []]));
  for (let round = 0; round < 3; round++) {
    $("race-figures").textContent = `round ${round + 1} of 3 …`;
    for (const way of Object.keys(names)) times[way].push((await ask("race", { words, way })).ms);
  }
  const middle = (values) => values.toSorted((one, other) => one - other)[1];
  bars($("results"), Object.entries(names).map(([way, name]) => ({ name, value: middle(times[way]) })), milliseconds);
  const ratio = middle(times.indexedDb) / middle(times.heap);
  $("race-figures").textContent = `${number(words)} words: ${(heapBytes / 2 ** 20).toFixed(0)} MiB of heap, or \
${(jsonBytes / 2 ** 20).toFixed(1)} MiB of JSON. The heap is back ${ratio.toFixed(1)} times as fast as from IndexedDB (middle of three).`;
});
button("reload", () => location.reload());
button("kill", async () => {
  // The new ones would have the heaps that are being forgotten.
  if ($("clear").getAttribute("aria-disabled") === "true") return;
  end("The programs were killed.");
  begin();
  await start();
});
button("clear", async () => {
  // It would go on with its heap, and this one would wait for it in vain.
  if (await hasOtherTab()) throw new Error("Another tab of this demo is open: close it, and forget the heaps then.");
  end("The heaps are forgotten.");
  try {
    await forget();
  } catch (error) {
    // What was asked meanwhile nobody answers.
    failAll(error.message);
    begin();
    await start().catch(() => {});
    throw error;
  }
  location.reload();
});
button("keep", async () => {
  say(await keepStorage() ? "The browser keeps the heaps also when the disk gets full." :
    "The browser does not promise to keep them; it may ask again when you use the site more.");
});

async function hasOtherTab() {
  const { held } = await navigator.locks.query();
  return held.filter(({ name }) => name === TAB).length > 1;
}

/** Removes all that this site stores, of which no worker is open. */
async function forget() {
  for (const name of await heapNames()) await whenReleased(() => removeHeap(name));
  // The files of the comparison, and folders of heaps that a killed tab had just begun.
  const root = await navigator.storage.getDirectory();
  const left = [];
  for await (const name of root.keys()) left.push(name);
  for (const name of left) await whenReleased(() => root.removeEntry(name, { recursive: true }));
  for (const { name } of await indexedDB.databases()) {
    await new Promise((done) => {
      const request = indexedDB.deleteDatabase(name);
      request.onsuccess = request.onerror = request.onblocked = done;
    });
  }
}

/** Tries again what a worker that was just ended still prevents. */
async function whenReleased(work) {
  const until = performance.now() + RELEASE_MS;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const isHeld = ["LockedError", "NoModificationAllowedError"].includes(error.name);
      if (!isHeld || performance.now() > until) throw error;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

addEventListener("resize", drawSoon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawSoon);

navigator.locks?.request(TAB, { mode: "shared" }, () => new Promise(() => {}));
begin();
start().catch((error) => say(error.message, true));
