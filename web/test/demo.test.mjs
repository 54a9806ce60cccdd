// The page of `./demo web` in a real Chromium, as a user has it: without `holdfast serve` behind it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { APPLETS, Browser, serve, WEB } from "./browsers.mjs";

const MIB = 2 ** 20;
/** How long an answer of the page is waited for: the tables of the spell checker take seconds. */
const ANSWER_MS = 20_000;
const DICTIONARIES = ["/usr/share/wordnet/index.noun", "/usr/share/dict/american-english-huge"];
const missing = DICTIONARIES.filter((path) => !existsSync(path));
const skip = missing.length === 0 ? false
  : `there is no ${missing.join(", ")}; apt has the packages wordnet-base and wamerican-huge`;
const OPTIONS = { skip, timeout: 60_000 };
/** What the page is worked with, in the order of the page. */
const CONTROLS = ["reload", "kill", "clear", "keep", "text", "check", "mail", "category", "learn", "classify",
  "feed", "words", "race", "play", "video-file", "digest-file", "digest"];
/** For people to look at: beside what was built. */
const SHOTS = join(APPLETS, "..", "demo-shots");
let folder, server;

/** Puts the demo together, for the first test of it that runs. */
async function assembled() {
  folder = mkdtempSync(join(tmpdir(), "holdfast-demo-"));
  const site = join(folder, "site");
  execFileSync(process.execPath, [join(WEB, "demo/assemble.mjs"), site, APPLETS], { timeout: 30_000 });
  return await serve({}, site);
}
after(() => {
  server?.close();
  if (folder) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});

/** A browser that is gone with its profile when the test ends. */
function browserFor(t) {
  const browser = new Browser();
  t.after(() => browser.remove());
  return browser;
}

/** The demo in a new tab, which has said that it is ready. */
async function demoIn(browser) {
  server ??= await assembled();
  const page = await browser.page();
  await page.goto(`${server.origin}/demo/index.html`);
  await said(page, "status", /classifier/);
  return page;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const textOf = (page, id) => page.$eval(`#${id}`, (element) => element.textContent);
const press = (page, id) => page.$eval(`#${id}`, (element) => element.click());
const activeId = (page) => page.evaluate(() => document.activeElement.id);

/** Waits until an element says something, and what that is. */
async function said(page, id, expected, ms = ANSWER_MS) {
  const end = Date.now() + ms;
  for (;;) {
    const text = await textOf(page, id);
    if (expected.test(text)) return text;
    assert.ok(Date.now() < end, `the demo's ${id} says, and not ${expected}: ${text}`);
    await pause(50);
  }
}

async function check(page, time) {
  await press(page, "check");
  await said(page, "spell-time", time);
  const unknown = await page.$$eval("#unknown li", (items) => items.map(({ textContent }) => textContent));
  for (const line of ["recieved → received", "tomorow → tomorrow"]) {
    assert.ok(unknown.includes(line), unknown.join());
  }
}

// Guarantee: web/demo
test("the demo is back after a reload and a killed browser", OPTIONS, async (t) => {
  const browser = browserFor(t);
  let page = await demoIn(browser);
  assert.match(await textOf(page, "status"), /is ready after .* with a new heap/);
  assert.equal(await textOf(page, "learnt"), "It has learnt nothing yet.");
  await check(page, /with building the tables/);
  await press(page, "learn");
  await said(page, "learnt", /1 of spam/);
  await press(page, "classify");
  await said(page, "mail-time", /classified in/);
  assert.match(await textOf(page, "verdict"), /^spam100/);
  const isBack = async () => {
    assert.match(await textOf(page, "status"), /is back after/);
    await said(page, "learnt", /1 of spam/);
    await check(page, /from the heap/);
  };
  await page.reload();
  await said(page, "status", /classifier/);
  await isBack();
  await browser.kill();
  page = await demoIn(browser);
  await isBack();
  // As a crash of the programs alone.
  await press(page, "kill");
  await said(page, "status", /is back after/);
  await said(page, "heap-figures", /pages of 4 KiB/);
  const label = await page.$eval("#pages", (canvas) => canvas.getAttribute("aria-label"));
  assert.equal(label, `Pages of the heap. ${await textOf(page, "heap-figures")}`);
});

// Guarantee: web/demo
test("a second tab of the demo shares the classifier", OPTIONS, async (t) => {
  const browser = browserFor(t);
  const first = await demoIn(browser);
  await press(first, "learn");
  await said(first, "learnt", /1 of spam/);
  const second = await demoIn(browser);
  assert.match(await textOf(second, "status"), /Another tab runs the classifier/);
  await said(second, "heap-figures", /Another tab/);
  await press(second, "learn");
  await said(second, "learnt", /2 of spam/);
  // A tab that forgot the heaps would take them from the other one.
  await press(second, "clear");
  await said(second, "status", /Another tab of this demo is open/);
  await first.close();
  await said(second, "status", /This tab runs the classifier now/);
  await press(second, "learn");
  await said(second, "learnt", /3 of spam/);
  await said(second, "heap-figures", /pages of 4 KiB/);
  // Right behind a commit, whose worker has its locks and handles for a moment more.
  const again = second.waitForNavigation({ timeout: ANSWER_MS });
  await press(second, "clear");
  await again;
  await said(second, "status", /with a new heap/);
  assert.equal(await textOf(second, "learnt"), "It has learnt nothing yet.");
});

// Guarantee: web/demo
test("the demo fits narrow screens in both colour schemes", OPTIONS, async (t) => {
  const page = await demoIn(browserFor(t));
  await check(page, /with building the tables/);
  await press(page, "learn");
  await said(page, "learnt", /1 of spam/);
  await press(page, "classify");
  await said(page, "mail-time", /classified in/);
  mkdirSync(SHOTS, { recursive: true });
  for (const value of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
    for (const width of [360, 1280]) {
      await page.setViewport({ width, height: 800 });
      // Its pictures are drawn anew.
      await pause(400);
      const [needed, given] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(needed <= given, `${value}: ${needed} of ${given} pixels`);
      const path = join(SHOTS, `${value}-${width}.png`);
      await page.screenshot({ path, fullPage: true });
      t.diagnostic(`the demo looks so: ${path}`);
    }
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const isDark = Number(/\d+/.exec(ground)[0]) < 128;
    assert.equal(isDark, value === "dark", ground);
  }
});

// Guarantee: web/demo
test("each control of the demo works by keyboard", OPTIONS, async (t) => {
  const page = await demoIn(browserFor(t));
  await page.bringToFront();
  const reached = [];
  // What scrolls is reached, too.
  for (let i = 0; i < 2 * CONTROLS.length; i++) {
    await page.keyboard.press("Tab");
    reached.push(await activeId(page));
  }
  const inOrder = reached.filter((id, i) => CONTROLS.includes(id) && reached.indexOf(id) === i);
  assert.deepEqual(inOrder, CONTROLS);
  const all = await page.$$eval("button, input, select, textarea", (elements) => elements.map(({ id }) => id));
  assert.deepEqual(all, CONTROLS, "the list of this test is that of the page");
  // A press that is slow, another one meanwhile, and a fast one: the focus stays.
  const marks = (id) => page.$eval(`#${id}`, (element) => element.getAttribute("aria-disabled"));
  await page.focus("#feed");
  await page.keyboard.press("Enter");
  assert.deepEqual([await activeId(page), await marks("feed")], ["feed", "true"]);
  await page.keyboard.press("Enter");
  await said(page, "feed-time", /each/);
  assert.deepEqual([await activeId(page), await marks("feed")], ["feed", null]);
  assert.match(await textOf(page, "learnt"), /100 of spam, 100 of made-up/, "the second press did nothing");
  await page.focus("#classify");
  await page.keyboard.press("Space");
  await said(page, "mail-time", /classified in/);
  assert.equal(await activeId(page), "classify");
  // Each key presses each button; what it does is not done here.
  await page.evaluate(() => {
    globalThis.pressed = [];
    addEventListener("click", (event) => {
      event.preventDefault();
      event.stopImmediatePropagation();
      pressed.push(event.target.id);
    }, { capture: true });
  });
  const buttons = await page.$$eval("button", (elements) => elements.map(({ id }) => id));
  for (const id of buttons) {
    await page.focus(`#${id}`);
    for (const key of ["Enter", "Space"]) await page.keyboard.press(key);
  }
  assert.deepEqual(await page.evaluate(() => pressed), buttons.flatMap((id) => [id, id]));
});

// Guarantee: web/demo
test("the demo digests a file without a native server", OPTIONS, async (t) => {
  const page = await demoIn(browserFor(t));
  const input = await page.$("#digest-file");
  // The second one is more than a call takes.
  for (const size of [MIB, 65 * MIB]) {
    const bytes = Buffer.alloc(size, "what is digested ");
    const path = join(folder, `digested-${size}`);
    writeFileSync(path, bytes);
    await input.uploadFile(path);
    const digest = createHash("md5").update(bytes).digest("hex");
    const text = await said(page, "digest-figures", new RegExp(`^MD5 ${digest}\\. `), 30_000);
    assert.match(text, /ms in JavaScript, .* ms in WebAssembly\. Not natively: /);
    assert.equal(await page.$eval("#plot", (canvas) => canvas.getAttribute("aria-label")), `Time by size. ${text}`);
  }
  // More than a call takes is refused before anything is started for it.
  const video = join(folder, "video");
  writeFileSync(video, Buffer.alloc(17 * MIB));
  const videoInput = await page.$("#video-file");
  await videoInput.uploadFile(video);
  await said(page, "video-figures", /has 17\.0 MiB.*choose a shorter one/);
});
