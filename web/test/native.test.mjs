// Native applets of pages that `holdfast serve` serves, in a real Chromium.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { APPLETS, HOLDFAST, tab } from "./browser.mjs";
import { nativeCallsMs } from "./native-latency.mjs";

const WEB = new URL("..", import.meta.url).pathname;
let folder, server;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "holdfast-native-"));
  const site = join(folder, "site");
  await cp(join(WEB, "dist"), join(site, "dist"), { recursive: true });
  for (const name of ["echo", "trial"]) await cp(join(APPLETS, name), join(site, name));
  await writeFile(join(site, "index.html"), "<p>");
  await writeFile(join(site, "worker.mjs"), `
    import { NativeApplet } from "/dist/index.js";
    const applet = await NativeApplet.open("/echo");
    postMessage(new TextDecoder().decode(await applet.call("reverse", "abc")));
  `);
});
afterEach(async () => {
  await stop();
  await rm(folder, { recursive: true, force: true, maxRetries: 5 });
});

/** Starts the server; the address of its page. */
async function serve(...options) {
  const args = ["serve", "--web", join(folder, "site"), "--never-ask", ...options];
  server = spawn(HOLDFAST, args, {
    env: { ...process.env, HOLDFAST_HOME: join(folder, "home"), HOLDFAST_POOL: join(folder, "pool") },
    stdio: ["ignore", "pipe", "inherit"],
  });
  return await new Promise((resolve, reject) => {
    server.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    server.stdout.once("data", (line) => resolve(String(line).trim()));
  });
}

async function stop() {
  const child = server;
  server = undefined;
  if (!child || child.exitCode !== null || child.signalCode) return;
  const gone = new Promise((done) => child.once("exit", done));
  child.kill("SIGTERM");
  await gone;
}

/** The count of the applet `echo`, one higher at each call, in a new applet. */
const count = (page, server) => page.evaluate(async (server) => {
  const { NativeApplet } = await import("/dist/index.js");
  try {
    const applet = await NativeApplet.open("/echo", { server, heaps: [server ? "theirs" : "tally"] });
    const bytes = await applet.call("count");
    return Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  } catch (error) {
    return `${error.name} ${error.failure}`;
  }
}, server);

// Guarantee: serve/browser
test("a page runs a native applet, and a reload and a restart of the server keep its heap", async () => {
  const { page } = await tab();
  const url = await serve();
  await page.goto(url);
  assert.equal(await page.evaluate(() => globalThis.crossOriginIsolated), false);
  assert.equal(await count(page), 1);
  // The applet of the page before is not closed by a word.
  await page.reload();
  assert.equal(await count(page), 2);
  await stop();
  await page.goto(await serve());
  assert.equal(await count(page), 3);
});

// Guarantee: serve/browser
test("a page of another origin is refused, until its origin is allowed", async () => {
  // The page of the tests' own server.
  const { page } = await tab();
  const origin = new URL(page.url()).origin;
  const openEcho = (server) => page.evaluate(async (server) => {
    const { NativeApplet } = await import("/dist/index.js");
    try {
      const applet = await NativeApplet.open("/applets/echo", { server, heaps: ["theirs"] });
      return (await applet.call("count"))[0];
    } catch (error) {
      return `${error.name} ${error.failure}`;
    }
  }, server);
  const url = await serve();
  assert.equal(await openEcho(url), "NativeError no-server");
  const socket = (server) => page.evaluate((server) => new Promise((done) => {
    const socket = new WebSocket(`${server.replace("http", "ws")}holdfast`);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  }), server);
  assert.equal(await socket(url), "refused");
  await stop();
  const allowing = await serve("--allow", origin);
  assert.equal(await openEcho(allowing), 1);
  const { page: own } = await tab();
  await own.goto(allowing);
  assert.equal(await own.evaluate(async () => {
    const { NativeApplet } = await import("/dist/index.js");
    return await NativeApplet.open("/echo", { heaps: ["theirs"] }).catch((error) => error.failure);
  }), "denied", "another origin's heap");
});

// Guarantee: serve/browser
test("calls stream, fail, are cancelled and wait for room; a worker calls, too", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const seen = await page.evaluate(async () => {
    const { NativeApplet } = await import("/dist/index.js");
    const text = (bytes) => new TextDecoder().decode(bytes);
    const caught = (promise) => promise.then(() => "done", (error) => error.name);
    const applet = await NativeApplet.open("/echo");
    const seen = { functions: applet.functions.length };
    let sum = 0;
    for await (const part of applet.stream("numbers", "1000")) sum += Number(text(part));
    seen.sum = sum;
    let parts = 0;
    for await (const part of applet.stream("numbers", "99999999")) if (part && ++parts === 100) break;
    seen.parts = parts;
    seen.unknown = await caught(applet.call("ehco"));
    seen.failed = await caught(applet.call("numbers", "x"));
    const large = new Uint8Array(5_000_000).map((_, at) => at % 251);
    const back = await applet.call("echo", large);
    seen.isSame = back.length === large.length && back.every((byte, at) => byte === large[at]);
    seen.tooLarge = await caught(applet.call("echo", new Uint8Array(17 << 20)));
    const many = Array.from({ length: 300 }, (_, at) => applet.call("echo", String(at)));
    seen.inOrder = (await Promise.all(many)).every((bytes, at) => text(bytes) === String(at));
    const trial = await NativeApplet.open(await (await fetch("/trial")).blob());
    seen.aborted = await caught(trial.call("spin_until_cancelled", "", { signal: AbortSignal.timeout(50) }));
    seen.died = await caught(trial.call("crash"));
    seen.gone = await caught(trial.call("echo"));
    await applet.close();
    seen.closed = await caught(applet.call("echo"));
    seen.worker = await new Promise((done) => {
      new Worker("/worker.mjs", { type: "module" }).onmessage = ({ data }) => done(data);
    });
    return seen;
  });
  assert.deepEqual(seen, {
    functions: 5, sum: 500500, parts: 100, unknown: "NativeError", failed: "CallError", isSame: true,
    tooLarge: "NativeError", inOrder: true, aborted: "TimeoutError", died: "AppletEndedError",
    gone: "AppletEndedError", closed: "AppletEndedError", worker: "cba",
  });
});

// Guarantee: serve/browser
test("calls are made in their order, also those that wait for room, and before the applet is closed", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const seen = await page.evaluate(async () => {
    const { NativeApplet } = await import("/dist/index.js");
    const applet = await NativeApplet.open("/echo");
    const done = [];
    // Six are more than may be on their way at once; a small one would have room.
    const inputs = [...Array.from({ length: 6 }, () => new Uint8Array(15 << 20)), "small"];
    const calls = inputs.map((input, at) => applet.call("echo", input).then(() => done.push(at)));
    const ended = await applet.call("echo", "", { signal: AbortSignal.timeout(1) })
      .then(() => "done", (error) => error.name);
    const before = done.length;
    await Promise.all([applet.close(), ...calls]);
    return { done, ended, isEarly: before < inputs.length };
  });
  assert.deepEqual(seen, { done: [0, 1, 2, 3, 4, 5, 6], ended: "TimeoutError", isEarly: true });
});

test("a small call takes little time", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const times = await nativeCallsMs(page);
  console.log(`native call: median ${times[500].toFixed(3)} ms, 99 % ${times[990].toFixed(3)} ms`);
  // The machine may be busy; what it takes alone is in the measurements.
  assert.ok(times[500] < 20);
});
