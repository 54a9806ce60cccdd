// Native applets of pages that `holdfast serve` serves, in a real Chromium.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createServer as createSocketServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { APPLETS, HOLDFAST, tab, use } from "./browser.mjs";
import { Browser } from "./browsers.mjs";
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

const environment = () =>
  ({ ...process.env, HOLDFAST_HOME: join(folder, "home"), HOLDFAST_POOL: join(folder, "pool") });
const holdfast = (...args) =>
  execFileSync(HOLDFAST, args, { env: environment(), encoding: "utf8", timeout: 30_000 });

/** Starts the server; the address of its page. */
async function serve(...options) {
  const args = ["serve", "--web", join(folder, "site"), "--never-ask", ...options];
  server = spawn(HOLDFAST, args, { env: environment(), stdio: ["ignore", "pipe", "inherit"] });
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

// Guarantee: serve/rebinding
test("a page that reaches the server by another name gets nothing", async () => {
  use(new Browser("chromium", ["--host-resolver-rules=MAP rebound.test 127.0.0.1",
    "--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable"]));
  const { page } = await tab();
  const url = await serve();
  const answer = await page.goto(`http://rebound.test:${new URL(url).port}/`);
  assert.equal(answer.status(), 421);
  const seen = await page.evaluate(async (url) => {
    const asked = (base) => fetch(`${base}holdfast/token`, { method: "POST" })
      .then(async (answer) => [answer.status, /[0-9a-f]{64}/.test(await answer.text())], () => "refused");
    const connected = (base) => new Promise((done) => {
      const socket = new WebSocket(`${base.replace("http", "ws")}holdfast`);
      socket.onopen = () => done("open");
      socket.onerror = () => done("refused");
    });
    const own = `${location.origin}/`;
    return { host: location.hostname, file: (await fetch("/dist/index.js")).status, token: await asked(own),
      socket: await connected(own), byAddress: [await asked(url), await connected(url)] };
  }, url);
  assert.deepEqual(seen, { host: "rebound.test", file: 421, token: [421, false], socket: "refused",
    byAddress: ["refused", "refused"] });
});

/** A token of the server, as a page gets it. */
const askToken = (page, server) => page.evaluate(async (server) => {
  const digits = await (await fetch(`${server}holdfast/token`, { method: "POST" })).text();
  return digits.trim().match(/../g).map((two) => parseInt(two, 16));
}, server);

/** Presents a token, and sends what is said then: the limits that the server told, or how it ended. */
const present = (page, server, token, more) => page.evaluate((server, token, more) => new Promise((done) => {
  const socket = new WebSocket(`${server.replace("http", "ws")}holdfast`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => socket.send(new Uint8Array([1, 1, ...token]));
  socket.onclose = ({ code }) => done(code);
  socket.onmessage = ({ data }) => {
    if (more !== undefined) return socket.send(new Uint8Array(more));
    done(JSON.parse(new TextDecoder().decode(new Uint8Array(data).subarray(2))));
    socket.close();
  };
}), server, token, more);

// Guarantee: serve/token
test("a token opens one connection, of the page that got it", async () => {
  const { page: friend } = await tab();
  const url = await serve("--allow", new URL(friend.url()).origin);
  const { page: own } = await tab();
  await own.goto(url);
  const token = await askToken(own, url);
  assert.equal(token.length, 32);
  assert.ok((await present(own, url, token)).frameBytes > 0);
  assert.equal(await present(own, url, token), 1008, "replayed");
  const another = await askToken(own, url);
  assert.equal(await present(friend, url, another), 1008, "of another origin");
  assert.equal(await present(own, url, another), 1008, "and used up by that");
  assert.ok((await present(friend, url, await askToken(friend, url))).frameBytes > 0);
});

// Guarantee: serve/frames
test("a message that is too large ends its connection, and no other one", async () => {
  const { page } = await tab();
  const url = await serve();
  await page.goto(url);
  const { frameBytes } = await present(page, url, await askToken(page, url));
  assert.equal(await present(page, url, await askToken(page, url), frameBytes + 1), 1009);
  // So large that the server does not read it to its end, and its last word may be lost.
  const code = await present(page, url, await askToken(page, url), frameBytes + (32 << 20));
  assert.ok([1006, 1009].includes(code), `${code}`);
  assert.equal(await count(page), 1);
});

// Guarantee: serve/pinned
test("a pinned program is fetched where the server lacks it, and no other one is sent", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const sha256 = createHash("sha256").update(await readFile(join(APPLETS, "echo"))).digest("hex");
  const seen = await page.evaluate(async (sha256) => {
    const { NativeApplet } = await import("/dist/index.js");
    const { fetch: fetchOfTheBrowser } = globalThis;
    const { send } = WebSocket.prototype;
    const [fetched, sent] = [[], []];
    globalThis.fetch = (what, ...rest) => {
      fetched.push(new URL(what, location.href).pathname);
      return fetchOfTheBrowser(what, ...rest);
    };
    WebSocket.prototype.send = function (bytes) {
      sent.push(bytes[0]);
      return send.call(this, bytes);
    };
    const failure = (...how) => NativeApplet.open(...how)
      .then(() => "opened", (error) => error.failure ?? error.name);
    const opens = async () => {
      fetched.length = 0;
      const applet = await NativeApplet.open("/echo", { sha256: sha256.toUpperCase() });
      const text = new TextDecoder().decode(await applet.call("reverse", "abc"));
      await applet.close();
      return [text, fetched.filter((path) => path === "/echo").length];
    };
    const bytes = new Uint8Array(await (await fetchOfTheBrowser("/echo")).arrayBuffer());
    const other = "0".repeat(64);
    const malformed = [await failure("/echo", { sha256: "abc" }), await failure("/echo", { sha256: null })];
    const wrongBytes = await failure(bytes, { sha256: other });
    const before = [fetched.length, sent.length];
    const wrong = await failure("/echo", { sha256: other });
    const UPLOAD = 3;
    return { malformed, wrongBytes, before, wrong, isSent: sent.includes(UPLOAD),
      first: await opens(), second: await opens() };
  }, sha256);
  assert.deepEqual(seen, { malformed: ["RangeError", "RangeError"], wrongBytes: "wrong-hash", before: [0, 0],
    wrong: "wrong-hash", isSent: false, first: ["cba", 1], second: ["cba", 0] });
});

/** Has a connection be a WebSocket, as a server does. */
function acceptSocket({ headers }, socket) {
  const accept = createHash("sha1")
    .update(`${headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    + `sec-websocket-accept: ${accept}\r\n\r\n`);
}

/** A message of a server, of less than 64 KiB, as it travels. */
function frame(bytes) {
  const { length } = bytes;
  return Buffer.from([0x82, ...length < 126 ? [length] : [126, length >> 8, length & 0xff], ...bytes]);
}

/** The first byte of a message of a page, which comes whole, or `undefined` for what is none. */
function kindOf(bytes) {
  if (bytes[0] !== 0x82) return undefined;
  const mask = { 126: 4, 127: 10 }[bytes[1] & 0x7f] ?? 2;
  return bytes[mask + 4] ^ bytes[mask];
}

// Guarantee: serve/browser
test("a close that failed at the server is rejected", async () => {
  const { page } = await tab();
  const sockets = new Set();
  const [HELLO, START, CALL, CLOSE] = [1, 2, 5, 8], APPLET = [1, 0, 0, 0], DIED = 5;
  const limits = { frameBytes: 1e6, appletBytes: 1e6, pendingCalls: 9, pendingBytes: 1e6, partsAhead: 9 };
  const json = (value) => Buffer.from(JSON.stringify(value));
  const ended = (kind) => (socket) => socket.write(frame([0x87, ...APPLET, kind, ...Buffer.from("a heap")]));
  // The last one is of an applet whose death a call was told of.
  const ends = [ended(0), ended(12), ended(9), ended(DIED), (socket) => socket.destroy(), ended(DIED)];
  const mock = createServer((_, response) =>
    response.setHeader("access-control-allow-origin", "*").end("00".repeat(32)));
  mock.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
  });
  mock.on("upgrade", (request, socket) => {
    const end = ends.shift();
    acceptSocket(request, socket);
    socket.on("data", (bytes) => {
      const kind = kindOf(bytes);
      if (kind === HELLO) socket.write(frame([0x81, 1, ...json(limits)]));
      if (kind === START) socket.write(frame([0x83, ...APPLET, ...json({ functions: ["crash"], notes: [] })]));
      if (kind === CALL) socket.write(frame([0x86, ...APPLET, 1, 0, 0, 0, DIED, 0, 0, 0, 0]));
      if (kind === CLOSE) end(socket);
    });
  });
  await new Promise((done) => mock.listen(0, "127.0.0.1", done));
  try {
    const seen = await page.evaluate(async (server, count) => {
      const { NativeApplet } = await import("/dist/index.js");
      const seen = [];
      for (let turn = 0; turn < count; turn++) {
        const applet = await NativeApplet.open(new Uint8Array(1), { server, openTimeoutMs: 10_000 });
        if (turn === count - 1) await applet.call("crash").catch(() => {});
        const closed = applet.close().then(() => "closed", (error) => error.failure ?? error.name);
        seen.push(await Promise.race([closed, new Promise((done) => setTimeout(done, 10_000, "no end"))]));
      }
      return seen;
    }, `http://127.0.0.1:${mock.address().port}`, ends.length);
    assert.deepEqual(seen, ["closed", "other", "QuotaError", "AppletEndedError", "AppletEndedError", "closed"]);
  } finally {
    sockets.forEach((socket) => socket.destroy());
    mock.close();
  }
});

// Guarantee: serve/browser
test("a program that cannot be loaded is a NativeError", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const cut = createServer((_, response) => {
    response.writeHead(200, { "access-control-allow-origin": "*", "content-length": 1000 });
    // The page has the head by then.
    response.write("half", () => setTimeout(() => response.destroy(), 100));
  });
  await new Promise((done) => cut.listen(0, "127.0.0.1", done));
  const source = `http://127.0.0.1:${cut.address().port}/echo`;
  const failure = (source) => page.evaluate(async (source) => {
    const { NativeApplet } = await import("/dist/index.js");
    return await NativeApplet.open(source).then(() => "opened", (error) => `${error.name} ${error.failure}`);
  }, source);
  const seen = [await failure(source)];
  cut.closeAllConnections();
  await new Promise((done) => cut.close(done));
  // Nothing is at that port now, nor at that of the page.
  seen.push(await failure(source));
  await stop();
  seen.push(await failure("/trial"), await failure("http://"));
  assert.deepEqual(seen, [...Array(3).fill("NativeError no-server"), "TypeError undefined"]);
});

// Guarantee: serve/browser
test("an opening has an end where the server's port never answers", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const sockets = new Set();
  const note = (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
  };
  const silent = createSocketServer(note);
  // A server that gives a token and opens a connection, and says no more.
  const mute = createServer((_, response) =>
    response.setHeader("access-control-allow-origin", "*").end("00".repeat(32)));
  mute.on("connection", note);
  mute.on("upgrade", acceptSocket);
  try {
    for (const listener of [silent, mute]) {
      await new Promise((done) => listener.listen(0, "127.0.0.1", done));
      const address = `http://127.0.0.1:${listener.address().port}`;
      const seen = await page.evaluate(async (server) => {
        const { NativeApplet } = await import("/dist/index.js");
        const ended = ({ source = "/echo", ...options }) => Promise.race([
          NativeApplet.open(source, { server, ...options })
            .then(() => "opened", (error) => `${error.name} ${error.failure ?? ""}`),
          new Promise((done) => setTimeout(done, 10_000, "no end")),
        ]);
        return [await ended({ openTimeoutMs: 300 }), await ended({ signal: AbortSignal.timeout(300) }),
          await ended({ signal: AbortSignal.abort() }), await ended({ openTimeoutMs: 0 }),
          await ended({ openTimeoutMs: 300, source: `${server}/echo` })];
      }, address);
      assert.deepEqual(seen, ["NativeError no-server", "TimeoutError ", "AbortError ", "RangeError ",
        "NativeError no-server"]);
    }
  } finally {
    sockets.forEach((socket) => socket.destroy());
    silent.close();
    mute.close();
  }
});

// Guarantee: web/transfer-portable
test("a portable heap of a page is handed over to native applets of its origin", async () => {
  const { page, step } = await tab();
  const { origin } = new URL(page.url());
  await step("serve", { applet: "mail" });
  const mails = ["spam\nSave up to 70 % on life insurance, call now",
    "work\nThe meeting about the compiler is on Tuesday"];
  for (const input of mails) assert.equal(await step("call", { name: "learn", input }), "");
  const there = await step("call", { name: "classify", input: "compiler meeting" });
  assert.match(there, /^work/);
  const { stream } = await step("exportOpen");
  await step("stop");
  await writeFile(join(folder, "mails"), Buffer.from(stream, "base64"));
  holdfast("heap", "import", join(folder, "mails"), "mails");
  const classified = (server) => page.evaluate(async (server) => {
    const { NativeApplet } = await import("/dist/index.js");
    try {
      const applet = await NativeApplet.open("/applets/mail", { server, heaps: ["mails"] });
      const bytes = await applet.call("classify", "compiler meeting");
      await applet.close();
      return new TextDecoder("latin1").decode(bytes);
    } catch (error) {
      return `${error.name} ${error.failure}`;
    }
  }, server);
  assert.equal(await classified(await serve("--allow", origin)), "NativeError denied", "it is not its own yet");
  await stop();
  holdfast("heap", "adopt", "mails", "--by", join(APPLETS, "mail"), "--app", origin);
  assert.equal(await classified(await serve("--allow", origin)), there);
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

// Guarantee: serve/browser
test("a call that waits for room keeps the bytes it was given", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const seen = await page.evaluate(async () => {
    const { NativeApplet } = await import("/dist/index.js");
    const applet = await NativeApplet.open("/echo");
    const bytes = new Uint8Array(1);
    // Many more than may be on their way at once.
    const calls = Array.from({ length: 200 }, (_, at) => {
      bytes[0] = at;
      return applet.call("echo", bytes);
    });
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    const late = new Promise((done) => setTimeout(done, 10_000, []));
    const results = await Promise.race([Promise.all(calls), late]);
    return [results.length, results.every((result, at) => result[0] === at)];
  });
  assert.deepEqual(seen, [200, true]);
});

test("a small call takes little time", async () => {
  const { page } = await tab();
  await page.goto(await serve());
  const times = await nativeCallsMs(page);
  console.log(`native call: median ${times[500].toFixed(3)} ms, 99 % ${times[990].toFixed(3)} ms`);
  // The machine may be busy; what it takes alone is in the measurements.
  assert.ok(times[500] < 20);
});
