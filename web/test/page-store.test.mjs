// Drives a real Chromium: what a reload, other tabs and a killed browser leave of a heap.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KILLS, kill, tab } from "./browser.mjs";

/** The steps behind which the browser is killed; behind the first one nothing is committed. */
export const PHASES = ["written", "committed", "sealed", "home", "reset"];
/** Kills behind these steps that the three tests of a store make together, also in the short form. */
const PHASE_KILLS_MIN = 50;
/** Phases and pages of the second commit: without one there is no step `home`. */
const GROWING = [...PHASES.map((phase) => [phase, 1]),
  ...PHASES.filter((phase) => phase !== "home").map((phase) => [phase, 0])];
const PHASE_KILLS = Math.max(KILLS, PHASE_KILLS_MIN - PHASES.length - GROWING.length);

// Guarantee: web/commit
test("a commit is there after a reload, and nothing else is", async () => {
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.deepEqual(await first.step("values"), [0]);
  assert.equal(await first.step("commit", { value: 7 }), 64);
  await first.page.close();
  const second = await tab();
  assert.equal(await second.step("open"), null);
  assert.deepEqual(await second.step("values"), [7]);
});

// Guarantee: web/commit
test("many commits leave what they made, also over checkpoints", async () => {
  const { step } = await tab();
  assert.equal(await step("open"), null);
  assert.equal(await step("commitOneByOne", { count: 300 }), true);
  assert.equal(await step("commit", { value: 3 }), 64);
  assert.equal(await step("close"), null);
  assert.equal(await step("open"), null);
  assert.equal(await step("commitOneByOne", { count: 200 }), true);
});

// Guarantee: web/locked
test("a second tab gets a LockedError, or waits until the first one is gone", async () => {
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.equal(await first.step("commit", { value: 5 }), 64);
  const second = await tab();
  assert.equal(await second.step("open"), "LockedError");
  const waiting = second.step("open", { wait: true });
  await first.page.close();
  assert.equal(await waiting, null);
  assert.deepEqual(await second.step("values"), [5]);
});

// Guarantee: web/readers
test("several tabs read a heap, while none may write", async () => {
  const [first, second, third] = [await tab(), await tab(), await tab()];
  assert.equal(await first.step("open"), null);
  assert.equal(await first.step("commit", { value: 9 }), 64);
  assert.equal(await second.step("open", { access: "read-only" }), "LockedError");
  // What is committed and not at home is read, too.
  await first.page.close();
  for (const { step } of [second, third]) {
    assert.equal(await step("open", { access: "read-only", wait: true }), null);
    assert.deepEqual(await step("values"), [9]);
    assert.equal(await step("commit", { value: 1 }), "Error");
  }
  assert.equal(await (await tab()).step("open"), "LockedError");
});

// Guarantee: web/kill
test("a browser killed between the steps of a commit leaves all or nothing of it", async () => {
  let expected = 0;
  for (let round = 0; round < PHASE_KILLS; round++) {
    const { step } = await tab();
    assert.equal(await step("open"), null);
    assert.deepEqual(await step("values"), [expected], `before kill ${round}`);
    const [phase, value] = [PHASES[round % PHASES.length], 1 + (round % 250)];
    assert.equal(await step("stall", { value, phase }), "stalled");
    await kill();
    if (phase !== "written") expected = value;
  }
  const { step } = await tab();
  assert.equal(await step("open"), null);
  assert.deepEqual(await step("values"), [expected]);
});

// Guarantee: web/kill
test("so does one that is killed in a commit that is written in several pieces", async () => {
  let expected = 0;
  for (const phase of [...PHASES, undefined]) {
    const { step } = await tab();
    const value = expected + 1;
    assert.deepEqual(await step("stallLarge", { value, phase }), [expected], `before ${phase}`);
    if (phase === undefined) break;
    await kill();
    if (phase !== "written") expected = value;
  }
});

// Guarantee: web/kill
test("so does one whose pages make the heap longer, and go home before it", async () => {
  // With another commit that passes through the journal there are all steps, alone not `home`.
  for (const [phase, pages] of GROWING) {
    const first = await tab();
    await first.step("removeHeap", { name: "large" });
    assert.deepEqual(await first.step("stallLarge", { value: 7, phase, pages }), [0], `before ${phase}`);
    await kill();
    const { step } = await tab();
    const isThere = phase !== "written";
    assert.deepEqual(await step("stallLarge", {}), [isThere ? 7 : 0], `behind ${phase}`);
    // Nothing that was under way counts later.
    assert.deepEqual(await step("commitFirst", { value: 8 }), [8, isThere ? 7 : 0], `behind ${phase}`);
  }
});

// Guarantee: web/commit
test("an entry that lies behind a torn one never comes back", async () => {
  const { step } = await tab();
  await step("open");
  for (const value of [1, 2, 3]) await step("commit", { value });
  await step("abandon");
  // The second of three entries, each with a page of head and 64 others.
  await step("damage", { file: "journal", at: 4096 + 65 * 4096 + 5000 });
  await step("open");
  assert.deepEqual(await step("values"), [1]);
  await step("commit", { value: 9 });
  await step("abandon");
  await step("open");
  assert.deepEqual(await step("values"), [9]);
});

// Guarantee: web/commit
test("entries are on the disk before their seal, and a commit that failed leaves no heap", async () => {
  const { step } = await tab();
  await step("open");
  assert.equal(await step("failFirstWrite"), "QuotaError");
  await step("abandon");
  await step("open");
  assert.equal(await step("length"), 0);
  const order = await step("sealOrder");
  assert.deepEqual(order.slice(0, 4), ["pages", "flush", "header", "flush"]);
  await step("close");
  await step("open");
  assert.deepEqual(await step("values"), [3]);
});

// Guarantee: web/commit
test("a strict commit of nothing has the relaxed ones before it on the disk", async () => {
  const { step } = await tab();
  await step("open", {});
  await step("commit", { value: 1 });
  const [relaxed, strict, heap] = await step("flushesOfNothing");
  assert.deepEqual([relaxed, strict, heap > 0], [1, 0, true]);
});

// Guarantee: web/corrupt
test("a damaged sealed journal is a CorruptError", async () => {
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.equal(await first.step("stall", { value: 3, phase: "sealed" }), "stalled");
  await kill();
  const second = await tab();
  for (const at of [4, 8, 4096, 4096 + 12, 3 * 4096]) {
    assert.equal(await second.step("damage", { file: "journal", at }), null);
    assert.equal(await second.step("open"), "CorruptError", `byte ${at}`);
    assert.equal(await second.step("damage", { file: "journal", at }), null);
  }
  assert.equal(await second.step("open"), null);
  assert.deepEqual(await second.step("values"), [3]);
});

// Guarantee: web/commit
test("a commit that is larger than what JavaScript may allocate goes home, and is opened again", async () => {
  const { step } = await tab();
  await step("numbers", { name: "wide", count: 4_000_000, write: true });
  await step("boundAllocations", { bytes: 2 ** 21 });
  // Some pages in the journal, and more than 15 MiB in a row.
  assert.deepEqual(await step("numbers", { name: "wide", count: 8_000_000, write: true }), [8_000_000, true]);
  assert.deepEqual(await step("numbers", { name: "wide" }), [8_000_000, true]);
});

// Guarantee: web/commit
test("many new pages are written once, before their entry, and count with it", async () => {
  const { step } = await tab();
  const length = 700 * 4096;
  assert.deepEqual(await step("placeMany", { value: 5 }),
    ["header", "journal", "pages", "image", "head", "journal"]);
  assert.deepEqual(await step("long"), [length, [5]]);
  await step("removeHeap", { name: "long" });
  // Once at home they stay as they are; where the commit was relaxed they are flushed before the seal.
  for (const [durability, between] of [
    ["strict", ["image", "head", "journal"]], ["relaxed", ["head", "image", "journal"]]]) {
    assert.deepEqual(await step("placeMany", { value: 5, durability, checkpoint: true }),
      ["header", "journal", "pages", ...between, "header", "journal", "header", "journal"]);
    assert.deepEqual(await step("long"), [length, [5]]);
    await step("removeHeap", { name: "long" });
  }
  await step("placeMany", { value: 5 });
  // What was flushed before its entry is there, or damaged.
  await step("damage", { heap: "long", file: "image", at: 600 * 4096 });
  assert.equal(await step("long"), "CorruptError");
  await step("damage", { heap: "long", file: "image", at: 600 * 4096 });
  assert.deepEqual(await step("long"), [length, [5]]);
  await step("removeHeap", { name: "long" });
  // What was not, a power cut may have taken: then the commit was none, and leaves nothing.
  assert.deepEqual(await step("placeMany", { value: 5, durability: "relaxed" }),
    ["header", "journal", "pages", "head"]);
  await step("damage", { heap: "long", file: "image", at: 600 * 4096 });
  assert.deepEqual(await step("long"), [0, [0]]);
  await step("removeHeap", { name: "long" });
  // No strict commit stands behind such a one, to be lost with it.
  await step("placeMany", { value: 5, durability: "relaxed" });
  await step("commitFirstOfLong", { value: 9 });
  await step("damage", { heap: "long", file: "image", at: 600 * 4096 });
  assert.deepEqual(await step("long"), [length, [9, 5, 4]]);
  await step("removeHeap", { name: "long" });
  assert.deepEqual(await step("growInSteps", { durability: "relaxed" }), [true, "as if killed", true]);
  await step("removeHeap", { name: "long" });
  assert.deepEqual(await step("growInSteps", { durability: "strict" }), [true, "as if killed", true]);
  await step("removeHeap", { name: "long" });
  assert.equal((await step("placeMany", { value: 5 })).length, 6);
  await step("cut", { heap: "long", file: "image", bytes: 600 * 4096 });
  assert.equal(await step("long"), "CorruptError");
  await step("removeHeap", { name: "long" });
  // Nor does one that found no room.
  assert.equal(await step("placeInVain", { value: 6 }), "QuotaError");
  assert.deepEqual(await step("long"), [length, [6, 0]]);
});

// Guarantee: web/commit
test("a heap becomes shorter, and no page comes back", async () => {
  const { step } = await tab();
  assert.deepEqual(await step("shorten"), [[8, 7, 7, 7, 7], [8, 7, 7, 7, 7, 0, 0, 0, 0, 0]]);
});

// Guarantee: web/names
test("a folder of the page's own is no heap", async () => {
  const { step } = await tab();
  assert.deepEqual(await step("ownFolder", { name: "photos" }), ["NotFoundError", ["own"]]);
  assert.deepEqual(await step("heapNames", {}), []);
});

// Guarantee: web/names
test("what the page keeps of its own is no heap, and stays", async () => {
  const { step } = await tab();
  const refused = ["ExistsError", "NotFoundError"];
  assert.deepEqual(await step("ownFiles"), {
    failures: [...refused, ...refused, ...refused], listed: ["heap"],
    files: ["own", "journal,own", "own"], left: [],
  });
});

// Guarantee: web/names
test("what is no name of a heap is a RangeError, and what is only read is not made", async () => {
  const { step } = await tab();
  for (const name of ["", ".", "..", "a/b", "a\\b", "a\0b", "a\nb", 7]) {
    assert.equal(await step("openFailure", { name }), "RangeError", JSON.stringify(name));
  }
  for (const name of ["a b", "grüße", "日本", "...", "a".repeat(64)]) {
    assert.equal(await step("openFailure", { name }), null, name);
  }
  const before = await step("folders");
  assert.equal(await step("openFailure", { name: "none", access: "read-only" }), "NotFoundError");
  assert.equal(await step("exportHeap", { name: "none" }), "NotFoundError");
  assert.equal(await step("snapshots", { heap: "none" }), "NotFoundError");
  assert.deepEqual(await step("folders"), before);
});
