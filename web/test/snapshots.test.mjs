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
