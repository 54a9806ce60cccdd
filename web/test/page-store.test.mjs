// Drives a real Chromium: what a reload, a second tab and a killed browser leave of a heap.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import puppeteer from "puppeteer-core";

const WEB = new URL("..", import.meta.url).pathname;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const KILLS = Number(process.env.HOLDFAST_WEB_KILLS ?? 8);
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];

let server, profile, browser;

before(async () => {
  server = createServer(async (request, response) => {
    try {
      if (request.url === "/") return response.setHeader("content-type", "text/html").end("<p>");
      const bytes = await readFile(join(WEB, normalize(request.url)));
      response.setHeader("content-type", "text/javascript").end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
});
after(async () => {
  await kill();
  server.closeAllConnections();
  server.close();
  if (profile) await rm(profile, { recursive: true, force: true, maxRetries: 5 });
});
beforeEach(async () => {
  await kill();
  if (profile) await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  profile = await mkdtemp(join(tmpdir(), "holdfast-web-"));
});

async function kill() {
  const child = browser?.process();
  browser = undefined;
  if (!child || child.exitCode !== null || child.signalCode) return;
  const gone = new Promise((done) => child.once("exit", done));
  child.kill("SIGKILL");
  await gone;
}

/** A new page, and a function that runs one step in its worker. */
async function tab() {
  browser ??= await puppeteer.launch({
    executablePath: CHROMIUM, args: FLAGS, userDataDir: profile, timeout: 20_000 });
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  await page.evaluate(() => new Promise((done, failed) => {
    globalThis.worker = new Worker("/test/worker.mjs", { type: "module" });
    worker.onmessage = done;
    worker.onerror = () => failed(new Error("the worker did not start"));
  }));
  const step = (name, rest = {}) => page.evaluate((message) => new Promise((done) => {
    worker.onmessage = ({ data }) => done(data.error ?? data.ok);
    worker.postMessage(message);
  }), { step: name, ...rest });
  return { page, step };
}

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
