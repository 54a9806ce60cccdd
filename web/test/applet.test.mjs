// Runs applets in a real Chromium, the same files that `holdfast run` takes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KILLS, kill, tab } from "./browser.mjs";

const MIB = 2 ** 20;

/** A guest book in a new tab: `call("add", "Ada")` runs the applet once. */
async function guestbook() {
  const { page, step } = await tab();
  const call = (...args) => step("run", { applet: "guestbook", args, limit: 16 * MIB });
  return { page, step, call };
}

/** The entries, without the times of writing. */
const texts = ({ lines }) => lines.map((line) => line.split("  ").at(-1));

// Guarantee: web/applet
test("an applet finds its heap again after a reload", async () => {
  const first = await guestbook();
  for (const name of ["Ada", "Grace"]) assert.equal((await first.call("add", name)).exitCode, 0);
  await first.page.close();
  const second = await guestbook();
  const listed = await second.call("list");
  assert.equal(listed.committedPages, 0, "a run that only reads writes nothing");
  assert.match(listed.lines.join("\n"), /Ada[^]*Grace/);
});

// Guarantee: web/applet-trap
test("what a crashed applet had open is rolled back at its next run", async () => {
  const { step, call } = await guestbook();
  await call("add", "Ada");
  const before = await call("list");
  assert.match(before.lines.join(), /Ada/);
  const exported = () => step("exportHeap", { name: "guestbook", limit: 16 * MIB });
  const stored = await exported();
  assert.equal(await exported(), stored, "an export changes nothing");
  const crashed = await call("crash");
  assert.ok(crashed === "RuntimeError" || crashed.exitCode !== 0, JSON.stringify(crashed));
  assert.notEqual(await exported(), stored, "what the applet left is stored");
  assert.deepEqual((await call("list")).lines, before.lines);
});

// Guarantee: web/applet-kill
test("a browser killed in a commit of an applet leaves each entry or nothing of it", async () => {
  const phases = ["journalled", "sealed", "home", "retired"];
  const names = [];
  for (let round = 0; round < KILLS; round++) {
    const phase = phases[round % 4];
    const { step } = await guestbook();
    const args = ["add", `guest${round}`];
    const found = await step("run", { applet: "guestbook", args, limit: 16 * MIB, phase });
    assert.equal(found, "stalled");
    await kill();
    if (phase !== "journalled") names.push(args[1]);
  }
  const listed = (await (await guestbook()).call("list")).lines.join("\n");
  assert.deepEqual(listed.match(/guest\d+/g), names);
});

// Guarantee: web/unsupported
test("an applet that serves calls is an UnsupportedError", async () => {
  const { step } = await tab();
  assert.equal(await step("run", { applet: "echo", args: [] }), "UnsupportedError");
});

// Guarantee: web/layout
test("a heap whose pointers lead where a page has no room is a LayoutMismatchError", async () => {
  const { step, call } = await guestbook();
  assert.equal((await call("add", "Ada")).exitCode, 0);
  const bases = [0, 4096, 2 ** 31 + 4096, 2 ** 31 - 65536, 2 ** 32 - 65536, 2 ** 52, 2 ** 63];
  for (const base of bases) {
    assert.equal(await step("setBase", { name: "guestbook", base }), null);
    assert.equal(await call("list"), "LayoutMismatchError", `${base}`);
  }
  assert.equal(await step("setBase", { name: "guestbook", base: 2 ** 31 }), null);
  assert.match((await call("list")).lines.join(), /Ada/);
});
