// Real browsers with profiles of their own, and a server on this machine for what their pages load: for
// the tests, which may kill them, and for what is measured.
import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import puppeteer from "puppeteer-core";

export const WEB = new URL("..", import.meta.url).pathname;
/** Where applets are built to; below this folder they have their names. */
export const APPLETS = process.env.HOLDFAST_APPLETS ?? join(WEB, "../target/applets");
/** The command line of Holdfast. */
export const HOLDFAST = process.env.HOLDFAST ?? join(WEB, "../target/debug/holdfast");
export const FIREFOX = process.env.FIREFOX ?? "/usr/bin/firefox-esr";
const KINDS = {
  chromium: {
    browser: "chrome",
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
      "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  },
  firefox: { browser: "firefox", executablePath: FIREFOX, headless: true },
};
const TYPES = { ".wasm": "application/wasm", ".html": "text/html", ".css": "text/css" };

/** Serves an empty page, a folder, and what `folders` names by the first part of a path. */
export async function serve(folders = {}, root = WEB) {
  const all = { applets: APPLETS, ...folders };
  const server = createServer(async (request, response) => {
    try {
      if (request.url === "/") return response.setHeader("content-type", "text/html").end("<p>");
      const path = normalize(decodeURIComponent(new URL(request.url, "http://host").pathname));
      const [, first, ...rest] = path.split("/");
      const folder = Object.hasOwn(all, first) ? join(all[first], ...rest) : join(root, path);
      const bytes = await readFile(folder);
      const extension = /\.\w+$/.exec(path)?.[0];
      response.setHeader("content-type", TYPES[extension] ?? "text/javascript").end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    /** From now on paths that begin with `first` lead to this folder. */
    add(first, folder) { all[first] = folder; },
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** A browser, started when a page is asked for. */
export class Browser {
  #kind;
  #browser;
  #profile;

  /** A Chromium, or a `firefox`, with these arguments besides. */
  constructor(kind = "chromium", args = []) {
    this.#kind = { ...KINDS[kind], args: [...KINDS[kind].args ?? [], ...args] };
  }

  async page() {
    this.#profile ??= await mkdtemp(join(tmpdir(), "holdfast-web-"));
    // In a profile that is used again the driver of Firefox expects this file, and removes it.
    await appendFile(join(this.#profile, "user.js"), "");
    // The driver may add to the list that it gets.
    const args = [...this.#kind.args];
    this.#browser ??= await puppeteer.launch({
      ...this.#kind, args, userDataDir: this.#profile, timeout: 40_000, protocolTimeout: 600_000 });
    return await this.#browser.newPage();
  }

  /** Kills it at once; what it stored stays. */
  async kill() {
    const child = this.#browser?.process();
    this.#browser = undefined;
    if (!child || child.exitCode !== null || child.signalCode) return;
    const gone = new Promise((done) => child.once("exit", done));
    child.kill("SIGKILL");
    await gone;
  }

  /** Ends it in order; what it stored stays. */
  async close() {
    await this.#browser?.close();
    this.#browser = undefined;
  }

  /** Kills it and removes what it stored. */
  async remove() {
    await this.kill();
    if (this.#profile) await rm(this.#profile, { recursive: true, force: true, maxRetries: 5 });
    this.#profile = undefined;
  }
}

/** A function that runs one step in a worker that a page starts from `script`. */
export async function stepper(page, script) {
  await page.evaluate((from) => new Promise((done, failed) => {
    globalThis.worker = new Worker(from, { type: "module" });
    worker.onmessage = done;
    worker.onerror = () => failed(new Error("the worker did not start"));
  }), script);
  return (name, rest = {}) => page.evaluate((message) => new Promise((done) => {
    worker.onmessage = ({ data }) => done(data.error ?? data.ok);
    worker.postMessage(message);
  }), { step: name, ...rest });
}
