// The main promises in Firefox, where Debian's package is installed.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { kill, tab, use } from "./browser.mjs";
import { Browser, FIREFOX } from "./browsers.mjs";

const MIB = 2 ** 20;
const skip = existsSync(FIREFOX) ? false : `there is no ${FIREFOX}; apt has the package firefox-esr`;

// Guarantee: web/firefox
test("in Firefox an applet finds its heap again after a reload and a kill", { skip }, async () => {
  use(new Browser("firefox"));
  const first = await tab();
  const run = ({ step }, ...args) => step("run", { applet: "guestbook", args, limit: 16 * MIB });
  assert.equal((await run(first, "add", "Ada")).exitCode, 0);
  await first.page.close();
  const second = await tab();
  assert.match((await run(second, "list")).lines.join(), /Ada/);
  await second.step("serve", { applet: "echo" });
  for (const expected of [1, 2, 3]) assert.equal(await second.step("count"), expected);
  await kill();
  const third = await tab();
  const listed = await run(third, "list");
  assert.match(listed.lines.join(), /Ada/);
  assert.equal(listed.committedPages, 0);
  await third.step("serve", { applet: "echo" });
  assert.equal(await third.step("count"), 4, "what a call stored was there when it returned");
  const fourth = await tab();
  assert.equal(await fourth.step("serve", { applet: "echo" }), "LockedError");
  await third.page.close();
  await fourth.step("serve", { applet: "echo", wait: true });
  assert.equal(await fourth.step("count"), 5);
});

// Guarantee: web/firefox
test("in Firefox a killed commit leaves all or nothing, and snapshots and the fallback work", { skip }, async () => {
  use(new Browser("firefox"));
  let expected = 0;
  for (const phase of ["written", "committed", "sealed", "home", "reset"]) {
    const { step } = await tab();
    assert.equal(await step("open"), null);
    assert.deepEqual(await step("values"), [expected], `before ${phase}`);
    const value = expected + 1;
    assert.equal(await step("stall", { value, phase }), "stalled");
    await kill();
    if (phase !== "written") expected = value;
  }
  const { step } = await tab();
  assert.equal(await step("open"), null);
  assert.deepEqual(await step("values"), [expected]);
  await step("close");
  assert.ok(await step("takeSnapshot", { heap: "heap", name: "first" }) > 0);
  assert.equal(await step("open"), null);
  await step("commit", { value: 99 });
  await step("close");
  assert.equal(await step("rollBack", { heap: "heap", name: "first" }), null);
  assert.equal(await step("open"), null);
  assert.deepEqual(await step("values"), [expected]);
  await step("refuseFiles");
  await step("serve", { applet: "echo", heaps: "poor", fallback: "indexeddb" });
  assert.equal(await step("count"), 1);
  await kill();
  const later = await tab();
  await later.step("refuseFiles");
  await later.step("serve", { applet: "echo", heaps: "poor", fallback: "indexeddb" });
  assert.equal(await later.step("count"), 2);
});
