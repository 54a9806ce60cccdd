// A browser that is killed at any moment while commits follow one another, in a real Chromium.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KILLS, kill } from "./browser.mjs";
import { heapTab } from "./views-tab.mjs";

const ROUNDS = process.env.HOLDFAST_WEB_KILLS ? KILLS : 8;
/** How long commits go on at most behind the first one: long enough for a checkpoint of 16 MiB. */
const DELAY_MS_MAX = 500;
/** How long the first commit is waited for. */
const START_MS = 20_000;

/** Numbers that are the same for a seed, from 0 on and below 1. */
function random(seed) {
  let state = seed;
  return () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9 | 0;
    return (state >>> 0) / 2 ** 32;
  };
}

/**
 * Opens the heap, and commits from then on without an end: each commit, strict, has all words of the heap
 * be its number, and is told when it has returned. What was found: the number, and whether all words had it.
 */
async function commitSteadily({ PAGE_SIZE, PageStore }) {
  const size = 64 * PAGE_SIZE;
  const store = await PageStore.open("steady", { size, wait: true });
  const words = new Uint32Array(size / 4), bytes = new Uint8Array(words.buffer);
  store.read(bytes);
  const found = words[0], isWhole = words.every((word) => word === found);
  const pages = Array.from({ length: 64 }, (_, page) => page);
  const commit = (number) => {
    words.fill(number);
    store.commit(bytes, pages, "strict");
    postMessage({ acknowledged: number });
    setTimeout(commit, 0, number + 1);
  };
  // Behind the answer of this step.
  setTimeout(commit, 50, found + 1);
  return { found, isWhole };
}

// Guarantee: web/kill
test("kills at random times lose no acknowledged commit", { timeout: 60_000 + ROUNDS * 6000 }, async (t) => {
  const seed = Number(process.env.HOLDFAST_WEB_SEED ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`seed ${seed}`);
  const next = random(seed);
  let acknowledged = 0;
  for (let round = 0; round <= ROUNDS; round++) {
    const { page, run } = await heapTab();
    const before = acknowledged;
    page.on("console", (message) => {
      const number = /^acknowledged (\d+)$/.exec(message.text())?.[1];
      if (number !== undefined) acknowledged = Number(number);
    });
    const { found, isWhole } = await run(commitSteadily);
    const words = `round ${round} of seed ${seed}: ${found} was found, ${before} acknowledged`;
    assert.ok(isWhole, `${words}; the commit is torn`);
    assert.ok(found >= before, words);
    if (round === ROUNDS) break;
    await page.evaluate(() => {
      views.onmessage = ({ data }) => console.log(`acknowledged ${data.acknowledged}`);
    });
    const end = Date.now() + START_MS;
    while (acknowledged <= found && Date.now() < end) await new Promise((done) => setTimeout(done, 5));
    assert.ok(acknowledged > found, `${words}; no commit followed`);
    await new Promise((done) => setTimeout(done, next() * DELAY_MS_MAX));
    await kill();
  }
});
