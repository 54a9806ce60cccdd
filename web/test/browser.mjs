// A real Chromium for the tests, which they may kill, and a server for what its pages load.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { after, before, beforeEach } from "node:test";
import puppeteer from "puppeteer-core";

const WEB = new URL("..", import.meta.url).pathname;
/** Where applets are built to; below this folder they have their names. */
export const APPLETS = process.env.HOLDFAST_APPLETS ?? join(WEB, "../target/applets");
/** The command line of Holdfast. */
export const HOLDFAST = process.env.HOLDFAST ?? join(WEB, "../target/debug/holdfast");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** How often a test kills the browser. */
export const KILLS = Number(process.env.HOLDFAST_WEB_KILLS ?? 8);
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];

let server, profile, browser;

before(async () => {
  server = createServer(async (request, response) => {
    try {
      if (request.url === "/") return response.setHeader("content-type", "text/html").end("<p>");
      const path = normalize(request.url);
      const applet = path.startsWith("/applets/") && path.slice("/applets/".length);
      const bytes = await readFile(applet ? join(APPLETS, applet) : join(WEB, path));
      const type = path.endsWith(".wasm") ? "application/wasm" : "text/javascript";
      response.setHeader("content-type", type).end(bytes);
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

export async function kill() {
  const child = browser?.process();
  browser = undefined;
  if (!child || child.exitCode !== null || child.signalCode) return;
  const gone = new Promise((done) => child.once("exit", done));
  child.kill("SIGKILL");
  await gone;
}

/** A new page, and a function that runs one step in its worker. */
export async function tab() {
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
  /** Has the origin get so many bytes of storage. */
  const grant = async (quotaSize) => {
    const session = await page.createCDPSession();
    const { origin } = new URL(page.url());
    await session.send("Storage.overrideQuotaForOrigin", { origin, quotaSize });
  };
  return { page, step, grant };
}

