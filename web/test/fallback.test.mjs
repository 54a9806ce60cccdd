// Heaps in IndexedDB, where the browser gives a page no files.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KILLS, kill, tab } from "./browser.mjs";
import { heapTab } from "./views-tab.mjs";

const MIB = 2 ** 20;
const fallback = "indexeddb";

/** A tab whose browser refuses files. */
async function poor() {
  const opened = await tab();
  await opened.step("refuseFiles");
  const count = async () =>
    (await opened.step("call", { name: "count", input: "" })).charCodeAt(0);
  return { ...opened, count };
}

// Guarantee: web/fallback
test("where there are no files a heap is kept in IndexedDB if that was asked for, and says so", async () => {
  const first = await poor();
  assert.equal(await first.step("serve", { applet: "echo" }), "UnsupportedError");
  const reader = { heap: "echo", access: "read-only" };
  assert.equal(await first.step("serve", { applet: "echo", heaps: reader, fallback }), "NotFoundError");
  await first.step("serve", { applet: "echo", fallback });
  assert.match((await first.step("weaker")).join(), /heap echo is kept in IndexedDB/);
  assert.deepEqual([await first.count(), await first.count()], [1, 2]);
  const second = await poor();
  assert.equal(await second.step("serve", { applet: "echo", fallback }), "LockedError");
  await first.page.close();
  await second.step("serve", { applet: "echo", fallback, wait: true });
  assert.equal(await second.count(), 3);
  const third = await tab();
  await third.step("serve", { applet: "echo", heaps: "other", fallback });
  assert.deepEqual(await third.step("weaker"), [], "files are taken where there are some");
});

// Guarantee: web/fallback
test("what was kept in IndexedDB moves into files when there are some, and two heaps of a name are told", async () => {
  const first = await poor();
  await first.step("serve", { applet: "echo", fallback });
  assert.deepEqual([await first.count(), await first.count()], [1, 2]);
  await first.step("stop");
  await first.page.close();
  const second = await tab();
  const count = async () => (await second.step("call", { name: "count", input: "" })).charCodeAt(0);
  await second.step("serve", { applet: "echo", fallback, wait: true });
  assert.equal(await count(), 3);
  assert.deepEqual(await second.step("weaker"), []);
  await second.step("stop");
  await second.step("serve", { applet: "echo", wait: true });
  assert.equal(await count(), 4, "it is in files, for who asks for no other place");
  await second.step("stop");
  await second.page.close();
  const third = await poor();
  await third.step("serve", { applet: "echo", fallback });
  assert.equal(await third.count(), 1, "files are refused again: it is another heap");
  await third.step("stop");
  await third.page.close();
  const last = await tab();
  await last.step("serve", { applet: "echo", fallback, wait: true });
  assert.match((await last.step("weaker")).join(), /another one of that name in IndexedDB/);
});

// Guarantee: web/fallback
test("a browser killed behind a call keeps what the call stored in IndexedDB", async () => {
  for (let round = 1; round <= KILLS; round++) {
    const { step, count } = await poor();
    await step("serve", { applet: "echo", fallback });
    assert.equal(await count(), round);
    await kill();
  }
});

// Guarantee: web/fallback
test("calls that are committed when nothing is called get to IndexedDB, too", async () => {
  const first = await poor();
  await first.step("serve", { applet: "echo", fallback, commits: "idle" });
  assert.equal(await first.count(), 1);
  await new Promise((done) => setTimeout(done, 800));
  await kill();
  const second = await poor();
  await second.step("serve", { applet: "echo", fallback });
  assert.equal(await second.count(), 2);
});

// Guarantee: web/fallback
test("a run that commits on its way leaves all its entries in IndexedDB", async () => {
  const first = await poor();
  const job = { applet: "guestbook", limit: 16 * MIB, fallback };
  for (const name of ["Ada", "Grace"]) {
    assert.equal((await first.step("run", { ...job, args: ["add", name] })).exitCode, 0);
  }
  await first.page.close();
  const second = await poor();
  const listed = await second.step("run", { ...job, args: ["list"] });
  assert.match(listed.lines.join(), /Ada.*Grace/);
  assert.equal(listed.committedPages, 0);
});

// Guarantee: web/fallback
test("a call for which IndexedDB has no room is a QuotaError, and the next one stores both", async () => {
  const before = await poor();
  await before.step("serve", { applet: "echo", fallback });
  assert.equal(await before.count(), 1);
  await kill();
  const first = await poor();
  const byte = 900_000;
  await first.grant(1);
  await first.step("serve", { applet: "echo", fallback });
  assert.equal(await first.step("call", { name: "count", input: "" }), "QuotaError");
  await first.step("fillHeap", { from: byte, value: 7 });
  assert.equal(await first.step("commitNow"), "QuotaError");
  await first.grant(1000 * MIB);
  assert.equal(await first.step("commitNow"), 0, "the pages of the one before go with it");
  assert.equal(await first.count(), 3);
  await first.page.close();
  const second = await poor();
  await second.step("serve", { applet: "echo", fallback, wait: true });
  assert.equal(await second.count(), 4);
  assert.equal(await second.step("heapByte", { at: byte }), 7);
});

// Guarantee: web/fallback
test("a commit that is put into IndexedDB by half is none", async () => {
  const first = await poor();
  assert.equal(await first.step("commitHalf", { puts: 5 }), "DataCloneError");
  await first.page.close();
  const second = await poor();
  assert.deepEqual(await second.step("numbersOfHalf"), [1]);
});

/**
 * Has the browser refuse files, and opens a heap of values, a map, an array and a document, to which each
 * round adds: what was found before it, and how the heap says that it is weaker.
 */
async function addRound(holdfast, _kept, { round, html }) {
  const { f64, KeptDocument, PersistentArray, PersistentHeap, PersistentMap, struct } = holdfast;
  navigator.storage.getDirectory = () =>
    Promise.reject(new DOMException("it is not allowed", "SecurityError"));
  const options = { size: 4 * 2 ** 20, fallback: "indexeddb", wait: true };
  const heap = await PersistentHeap.open("typed", options);
  const Point = struct("Point", { x: f64 });
  const point = Point.open(heap, "point") ?? Point.create(heap, "point");
  const map = PersistentMap.open(heap, "map");
  const list = PersistentArray.open(heap, "list", f64);
  let parsed = 0;
  const page = KeptDocument.open(heap, "page", { html: () => { parsed += 1; return html; } });
  const found = { x: point.x, map: [...map], list: [...list], parsed,
    words: page.querySelectorAll("p.a").map(({ textContent }) => textContent), weaker: heap.weaker.length };
  heap.transaction(() => {
    point.x = round;
    map.set(`round ${round}`, { round });
    list.push(round);
  });
  heap.commit();
  await heap.settled();
  // Nobody commits this.
  point.x = -1;
  return found;
}

// Guarantee: web/fallback
test("values, a map and a document are in IndexedDB after a reload and a kill", async () => {
  const html = "<!doctype html><p class=a>one<p>two<p class=a>three";
  for (let round = 1; round <= 3; round++) {
    const { page, run } = await heapTab();
    const found = await run(addRound, { round, html });
    const rounds = Array.from({ length: round - 1 }, (_, at) => at + 1);
    assert.deepEqual(found, {
      x: round - 1, map: rounds.map((number) => [`round ${number}`, { round: number }]), list: rounds,
      parsed: round === 1 ? 1 : 0, words: ["one", "three"], weaker: 1,
    }, `round ${round}`);
    if (round === 1) await page.close();
    else await kill();
  }
});

// Guarantee: web/fallback
test("a browser that refuses databases is a typed error", async () => {
  const { step } = await poor();
  const refusals = { SecurityError: "UnsupportedError", VersionError: "UnsupportedError",
    QuotaExceededError: "QuotaError" };
  for (const [error, expected] of Object.entries(refusals)) {
    await step("refuseDatabases", { error });
    assert.equal(await step("serve", { applet: "echo", fallback }), expected, error);
  }
});

// Guarantee: web/fallback
test("a heap in files opens where IndexedDB is broken", async () => {
  const { step } = await tab();
  const count = async () => (await step("call", { name: "count", input: "" })).charCodeAt(0);
  await step("serve", { applet: "echo", fallback });
  assert.equal(await count(), 1);
  await step("stop");
  await step("hideDatabases");
  await step("serve", { applet: "echo", fallback });
  assert.equal(await count(), 2);
  assert.match((await step("weaker")).join(), /kept in files, and whether .* could not be looked up/);
  await step("stop");
  // An empty one might stand in front of one in IndexedDB.
  assert.equal(await step("serve", { applet: "echo", heaps: "other", fallback }), "UnsupportedError");
});

// Guarantee: web/commit
test("a strict commit of nothing is a strict transaction behind relaxed ones", async () => {
  const { step } = await poor();
  assert.deepEqual(await step("durabilities"), ["relaxed", "strict"]);
});

// Guarantee: web/fallback
test("commits without a pause get to IndexedDB, too", async () => {
  const { step } = await poor();
  const [failure, transactions] = await step("commitSteadily", { fallback, ms: 1500 });
  assert.equal(failure, null);
  assert.ok(transactions > 2, `${transactions} transactions`);
});

// Guarantee: web/fallback
test("a heap that is still in IndexedDB is exported, and read", async () => {
  const first = await poor();
  for (const heaps of ["one", "two"]) {
    await first.step("serve", { applet: "echo", heaps, fallback });
    assert.equal(await first.count(), 1);
    await first.step("stop");
  }
  await first.page.close();
  const second = await tab();
  assert.equal(await second.step("exportHeap", { name: "three", fallback }), "NotFoundError");
  assert.ok((await second.step("exportHeap", { name: "one", fallback })).length > 1000);
  const reader = { heap: "two", access: "read-only" };
  const opened = await second.step("serve", { applet: "echo", heaps: reader, fallback, wait: true });
  assert.ok(opened.includes("count"), opened);
});
