// Snapshots of a heap, and the way back to them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { kill, tab } from "./browser.mjs";

const MIB = 2 ** 20;

async function guestbook() {
  const { step, page, grant } = await tab();
  const call = (...args) => step("run", { applet: "guestbook", args, limit: 16 * MIB });
  const lines = async () => (await call("list")).lines.join("\n");
  const on = (name, rest) => step(name, { heap: "guestbook", ...rest });
  return { step, page, grant, call, lines, on };
}

// Guarantee: web/snapshots
test("a heap goes back to a snapshot, also one that has grown since", async () => {
  const { page, call, lines, on } = await guestbook();
  await call("add", "Ada");
  const then = await lines();
  assert.ok(await on("takeSnapshot", { name: "first" }) > 0);
  assert.equal(await on("takeSnapshot", { name: "first" }), "ExistsError");
  for (let guest = 0; guest < 40; guest++) await call("add", `guest ${guest} ${"x".repeat(3000)}`);
  assert.ok(await on("takeSnapshot", { name: "second" }) > 0);
  assert.deepEqual(await on("snapshots"), ["first", "second"]);
  await page.close();
  const later = await guestbook();
  assert.equal(await later.on("rollBack", { name: "first" }), null);
  assert.equal(await later.lines(), then);
  await later.call("add", "Grace");
  assert.match(await later.lines(), /Ada[^]*Grace/);
  assert.equal(await later.on("rollBack", { name: "second" }), null);
  assert.match(await later.lines(), /guest 39/);
  assert.doesNotMatch(await later.lines(), /Grace/);
  assert.equal(await later.on("removeSnapshot", { name: "first" }), null);
  assert.equal(await later.on("rollBack", { name: "first" }), "NoSnapshotError");
  assert.deepEqual(await later.on("snapshots"), ["second"]);
});

// Guarantee: web/snapshots
test("a snapshot that ends in its head is a CorruptError", async () => {
  const { call, lines, on } = await guestbook();
  await call("add", "Ada");
  await on("takeSnapshot", { name: "first" });
  await on("cut", { file: "snapshot-first", bytes: 100 });
  assert.equal(await on("rollBack", { name: "first" }), "CorruptError");
  assert.match(await lines(), /Ada/);
});

// Guarantee: web/snapshots
test("a browser killed on the way back to a snapshot leaves all or nothing of it", { timeout: 120_000 }, async () => {
  const first = await tab();
  await first.step("open");
  await first.step("commit", { value: 1 });
  await first.step("close");
  assert.ok(await first.step("takeSnapshot", { heap: "heap", name: "first" }) > 0);
  await kill();
  let kills = 0, mayFind = [1];
  for (let nth = 1; nth <= 30; nth++) {
    const { step } = await tab();
    assert.equal(await step("open"), null, `before step ${nth}`);
    const [value, ...others] = await step("values");
    assert.deepEqual(others, [], `before step ${nth}`);
    assert.ok(mayFind.includes(value), `${value} before step ${nth}`);
    await step("commit", { value: 99 });
    await step("close");
    assert.deepEqual(await step("snapshots", { heap: "heap" }), ["first"]);
    const stalled = await step("stallRollBack", { heap: "heap", name: "first", nth });
    // It came to its end before that step.
    if (stalled === null) break;
    assert.equal(stalled, "stalled", `step ${nth}`);
    await kill();
    kills += 1;
    // The first step writes the commit, the second one flushes it.
    mayFind = [[99], [99, 1]][nth - 1] ?? [1];
  }
  // The commit's entry and its flush; the seal, the pages and the new journal, each with a flush.
  assert.equal(kills, 8);
});

// Guarantee: web/snapshots
test("a heap in IndexedDB has no snapshots, and says what to do instead", async () => {
  const poor = await tab();
  await poor.step("refuseFiles");
  await poor.step("serve", { applet: "echo", fallback: "indexeddb" });
  assert.equal(await poor.step("count", {}), 1);
  await poor.step("stop");
  const failures = await poor.step("snapshotFailures", { heap: "echo" });
  await poor.page.close();
  // Also where the browser has files again, and the heap is not there yet.
  failures.push(...await (await tab()).step("snapshotFailures", { heap: "echo" }));
  assert.equal(failures.length, 8);
  for (const [name, words] of failures) {
    assert.equal(name, "UnsupportedError");
    assert.match(words, /echo is in IndexedDB.*exportHeap/);
  }
});

// Guarantee: web/snapshots
test("a damaged or cut off snapshot is none to go back to, and the heap stays as it is", async () => {
  const { call, lines, on, grant } = await guestbook();
  await call("add", "Ada");
  await on("takeSnapshot", { name: "first" });
  await call("add", "Grace");
  const now = await lines();
  for (const at of [20, 30, 4096, 4096 + 8000]) {
    const file = { heap: "guestbook", file: "snapshot-first", at };
    await on("damage", file);
    assert.equal(await on("rollBack", { name: "first" }), "CorruptError", `byte ${at}`);
    await on("damage", file);
  }
  assert.equal(await lines(), now);
  await grant(1);
  assert.equal(await on("takeSnapshot", { name: "no-room" }), "QuotaError");
  await grant(1000 * MIB);
  assert.deepEqual(await on("snapshots"), ["first"]);
  for (const name of ["", "a/b", "x".repeat(65)]) {
    assert.equal(await on("takeSnapshot", { name }), "RangeError");
  }
  assert.equal(await on("rollBack", { name: "first" }), null);
  await kill();
  const later = await guestbook();
  assert.match(await later.lines(), /Ada/);
  assert.doesNotMatch(await later.lines(), /Grace/);
});
