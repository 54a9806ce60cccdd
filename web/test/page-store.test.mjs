// Drives a real Chromium: what a reload, a second tab and a killed browser leave of a heap.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KILLS, kill, tab } from "./browser.mjs";

// Guarantee: web/commit
test("a commit is there after a reload, and nothing else is", async () => {
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.deepEqual(await first.step("values"), [0]);
  assert.equal(await first.step("commit", { value: 7 }), null);
  await first.page.close();
  const second = await tab();
  assert.equal(await second.step("open"), null);
  assert.deepEqual(await second.step("values"), [7]);
});

// Guarantee: web/locked
test("a second tab gets a LockedError", async () => {
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.equal(await (await tab()).step("open"), "LockedError");
});

// Guarantee: web/kill
test("a browser killed between the steps of a commit leaves all or nothing of it", async () => {
  const phases = ["journalled", "sealed", "home", "retired"];
  let expected = 0;
  for (let round = 0; round < KILLS; round++) {
    const { step } = await tab();
    assert.equal(await step("open"), null);
    assert.deepEqual(await step("values"), [expected], `before kill ${round}`);
    const [phase, value] = [phases[round % 4], 1 + (round % 250)];
    assert.equal(await step("stall", { value, phase }), "stalled");
    await kill();
    if (phase !== "journalled") expected = value;
  }
  const { step } = await tab();
  assert.equal(await step("open"), null);
  assert.deepEqual(await step("values"), [expected]);
});

// Guarantee: web/corrupt
test("a damaged sealed journal is a CorruptError", async () => {
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.equal(await first.step("stall", { value: 3, phase: "sealed" }), "stalled");
  await kill();
  const second = await tab();
  assert.equal(await second.step("damage"), null);
  assert.equal(await second.step("open"), "CorruptError");
});
