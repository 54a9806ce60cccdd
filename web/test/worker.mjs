// Runs one step of a test in a dedicated worker: what only a worker may do.
import * as holdfast from "/dist/index.js";
import {
  Applet, AppletEndedError, exportHeap, heapNames, HostFailure, importHeap, keepStorage, PAGE_SIZE,
  PageStore, PersistentArray, PersistentHeap, removeHeap, removeSnapshot, rollBack, run, SharedApplet,
  snapshots, storageState, takeSnapshot, u32,
} from "/dist/index.js";
import { Heaps } from "/dist/heaps.js";
import { PageSums } from "/dist/page-sums.js";
import { ConsoleStdout, File, PreopenDirectory, WASI } from "/node_modules/@bjorn3/browser_wasi_shim/dist/index.js";

const PAGES = 64;
const size = PAGES * PAGE_SIZE;
/** More than two pieces of a journal, and no whole number of them. */
const LARGE = 700 * PAGE_SIZE;
const heap = new Uint8Array(size);
/** Pages of a heap of which most are zero. */
const SPARSE = 512;
let store, applet, shared;
const writeOfTheBrowser = FileSystemSyncAccessHandle.prototype.write;
const findOfTheBrowser = FileSystemDirectoryHandle.prototype.getFileHandle;
const logged = [];

/** Stands still behind a step of a commit until the browser is killed. */
const standStill = (phase, ok = "stalled") => phase && ((now) => {
  if (now !== phase) return;
  postMessage({ ok });
  for (;;);
});

/** What an applet needs of WASI; what it prints goes to `lines`. */
function shim(name, args, lines, folders = {}) {
  const print = ConsoleStdout.lineBuffered((line) => lines.push(line));
  const contents = (files) => new Map(Object.entries(files).map(([file, text]) =>
    [file, new File(new TextEncoder().encode(text))]));
  const opened = Object.entries(folders).map(([folder, files]) =>
    new PreopenDirectory(`/${folder}`, contents(files)));
  return new WASI([name, ...args], [], [print, print, print, ...opened], { debug: false });
}
const compile = (name) => WebAssembly.compileStreaming(fetch(`/applets/${name}.wasm`));
const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
const base64Of = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

const values = new Map();
/** What the tests' applets may call of their host. */
const functions = {
  log: (line) => void logged.push(new TextDecoder().decode(line)),
  kv_get: async (key) => {
    const value = values.get(new TextDecoder().decode(key));
    if (value === undefined) throw new HostFailure(404, "there is no such key");
    return value;
  },
  kv_set: (both) => {
    const [key, ...value] = new TextDecoder().decode(both).split("\0");
    values.set(key, new TextEncoder().encode(value.join("\0")));
  },
  http_get: () => new Promise(() => {}),
};

const steps = {
  async open({ access, wait }) {
    store = await PageStore.open("heap", { size, access, wait });
    store.read(heap);
  },
  close: () => store.close(),
  abandon: () => store.abandon(),
  length: () => store.length,
  /** What a relaxed commit and a checkpoint do to the journal, in order. */
  sealOrder() {
    const { write, flush } = FileSystemSyncAccessHandle.prototype;
    const done = [];
    FileSystemSyncAccessHandle.prototype.write = function (bytes, at) {
      done.push(bytes.length === 24 ? "header" : "pages");
      return write.call(this, bytes, at);
    };
    FileSystemSyncAccessHandle.prototype.flush = function () {
      done.push("flush");
      return flush.call(this);
    };
    steps.commit({ value: 3, durability: "relaxed" });
    store.checkpoint();
    return done;
  },
  /** How often a strict commit of nothing flushes: behind a relaxed one, a strict one, and one of a heap. */
  async flushesOfNothing() {
    const { flush } = FileSystemSyncAccessHandle.prototype;
    let flushes = 0;
    FileSystemSyncAccessHandle.prototype.flush = function () {
      flushes += 1;
      return flush.call(this);
    };
    try {
      const counts = ["relaxed", "strict"].map((durability) => {
        steps.commit({ value: 5, durability });
        flushes = 0;
        store.commit(heap, [], "strict");
        return flushes;
      });
      const kept = await PersistentHeap.open("kept");
      kept.commit("relaxed");
      flushes = 0;
      kept.commit("strict");
      counts.push(flushes);
      await kept.close();
      return counts;
    } finally {
      FileSystemSyncAccessHandle.prototype.flush = flush;
    }
  },
  /** The durability of the transactions of relaxed commits and of a strict one of nothing, in IndexedDB. */
  async durabilities() {
    const { transaction } = IDBDatabase.prototype;
    const seen = [];
    const kept = await PersistentHeap.open("kept", { fallback: "indexeddb" });
    IDBDatabase.prototype.transaction = function (stores, mode, options) {
      if (mode === "readwrite") seen.push(options?.durability);
      return transaction.call(this, stores, mode, options);
    };
    try {
      for (const durability of ["relaxed", "strict", "strict"]) {
        kept.commit(durability);
        await kept.settled();
      }
      await kept.close();
      return seen;
    } finally {
      IDBDatabase.prototype.transaction = transaction;
    }
  },
  /**
   * Commits of a heap that follow one another without a pause, until one fails: its error, and how many
   * transactions IndexedDB has had by then.
   */
  async commitSteadily({ fallback, ms }) {
    const { transaction } = IDBDatabase.prototype;
    let transactions = 0;
    IDBDatabase.prototype.transaction = function (stores, mode, options) {
      if (mode === "readwrite") transactions += 1;
      return transaction.call(this, stores, mode, options);
    };
    const kept = await PersistentHeap.open("steady", { fallback });
    const at = kept.allocate(8);
    const end = performance.now() + ms;
    let failure = null;
    try {
      for (let value = 1; performance.now() < end; value++) {
        kept.bytes(at)[0] = value;
        kept.commit();
        await new Promise((done) => setTimeout(done, 20));
      }
    } catch (error) {
      failure = error.name;
    }
    IDBDatabase.prototype.transaction = transaction;
    return [failure, transactions];
  },
  /** A heap of pages that fill none of WebAssembly, out and in again: its length, and its bytes' sum. */
  async moveOddPages() {
    const bytes = new Uint8Array(10 * PAGE_SIZE).fill(7);
    const odd = await PageStore.open("odd", { size: bytes.length });
    odd.commit(bytes, Array.from({ length: 10 }, (_, page) => page));
    odd.close();
    const stream = await exportHeap("odd");
    await removeHeap("odd");
    await importHeap("odd", stream);
    const back = await PageStore.open("odd", { size: 2 ** 20 });
    const whole = back.readWhole();
    back.close();
    return [whole.length, whole.reduce((sum, byte) => sum + byte, 0)];
  },
  /**
   * Commits that make a heap shorter, and longer again: what is found behind each of them, as its pages and
   * the values that they begin with.
   */
  async shorten() {
    const short = await PageStore.open("short", { size });
    const bytes = new Uint8Array(size);
    bytes.fill(7, 0, 10 * PAGE_SIZE);
    short.commit(bytes.subarray(0, 10 * PAGE_SIZE), Array.from({ length: 10 }, (_, page) => page));
    short.commit(bytes.fill(8, 0, PAGE_SIZE).subarray(0, 5 * PAGE_SIZE), [0]);
    short.abandon();
    const found = [];
    for (const count of [10, 0]) {
      const opened = await PageStore.open("short", { size });
      const read = new Uint8Array(opened.length);
      opened.read(read);
      found.push(Array.from({ length: read.length / PAGE_SIZE }, (_, page) => read[page * PAGE_SIZE]));
      if (count > 0) opened.commit(bytes.fill(0, 5 * PAGE_SIZE).subarray(0, count * PAGE_SIZE), [0]);
      opened.abandon();
    }
    return found;
  },
  /** Whether a heap that has nothing keeps an origin that a killed import left. */
  async originOfNothing() {
    const imported = await PageStore.open("nothing", { size });
    await imported.keepOrigin(new Uint8Array(256).fill(1));
    imported.abandon();
    const opened = await PageStore.open("nothing", { size });
    const origin = await opened.origin();
    opened.close();
    return origin !== undefined;
  },
  /** An import that finds no room, and a heap of its name that waits: the error, and whether it is there. */
  async importInVain({ name, base64 }) {
    const { write } = FileSystemSyncAccessHandle.prototype;
    FileSystemSyncAccessHandle.prototype.write = () => {
      FileSystemSyncAccessHandle.prototype.write = write;
      throw new DOMException("the disk is full", "QuotaExceededError");
    };
    const importing = importHeap(name, new Blob([bytesOf(base64)])).catch((error) => error.name);
    const isHeld = async () =>
      (await navigator.locks.query()).held.some((lock) => lock.name === `holdfast:${name}`);
    for (let i = 0; i < 1000 && !(await isHeld()); i++);
    const waited = await PersistentHeap.open(name, { wait: true });
    await waited.close();
    return [await importing, (await heapNames()).includes(name)];
  },
  /** A commit whose first write finds no room. */
  failFirstWrite() {
    const { write } = FileSystemSyncAccessHandle.prototype;
    FileSystemSyncAccessHandle.prototype.write = () => {
      throw new DOMException("the disk is full", "QuotaExceededError");
    };
    try {
      return steps.commit({ value: 1 });
    } finally {
      FileSystemSyncAccessHandle.prototype.write = write;
    }
  },
  /** The values of all pages, which one commit made the same. */
  values: () => [...new Set(Array.from({ length: PAGES }, (_, i) => heap[i * PAGE_SIZE]))],
  commit({ value, durability }) {
    heap.fill(value);
    return store.commit(heap, Array.from({ length: PAGES }, (_, i) => i), durability);
  },
  /** What caused the error of a commit. */
  commitFailure({ value }) {
    try {
      return steps.commit({ value });
    } catch (error) {
      return error.cause?.name;
    }
  },
  /** Commits, checkpoints, and stands still behind `phase` until the browser is killed. */
  async stall({ value, phase }) {
    store.close();
    store = await PageStore.open("heap", { size, onPhase: standStill(phase) });
    heap.fill(value);
    store.commit(heap, Array.from({ length: PAGES }, (_, i) => i));
    store.checkpoint();
  },
  /**
   * As `stall`, with a commit of more pages than are written in one piece, and another one of the first
   * `pages`; what was there before, when it stands still.
   */
  async stallLarge({ value, phase, pages = 0 }) {
    const large = new Uint8Array(LARGE);
    const before = await PageStore.open("large", { size: LARGE });
    before.read(large);
    before.close();
    const values = [...new Set(Array.from({ length: LARGE / PAGE_SIZE }, (_, i) => large[i * PAGE_SIZE]))];
    if (phase === undefined) return values;
    const stalling = await PageStore.open("large", { size: LARGE, onPhase: standStill(phase, values) });
    large.fill(value);
    stalling.commit(large, Array.from({ length: LARGE / PAGE_SIZE }, (_, i) => i));
    stalling.commit(large, Array.from({ length: pages }, (_, i) => i));
    stalling.checkpoint();
  },
  /**
   * A first commit of many pages to the heap `long`, and a checkpoint if that is wanted: where what was
   * written and flushed, in order.
   */
  async placeMany({ value, durability, checkpoint }) {
    const { write, flush } = FileSystemSyncAccessHandle.prototype;
    const long = new Uint8Array(LARGE).fill(value);
    const store = await PageStore.open("long", { size: LARGE });
    const done = [];
    const note = (what) => done.at(-1) === what || done.push(what);
    // Only the image is longer than a page by then.
    const isImage = (file) => file.getSize() === LARGE;
    FileSystemSyncAccessHandle.prototype.write = function (bytes, at) {
      note(isImage(this) ? "pages" : bytes.length === 24 ? "header" : "head");
      return write.call(this, bytes, at);
    };
    FileSystemSyncAccessHandle.prototype.flush = function () {
      note(isImage(this) ? "image" : "journal");
      return flush.call(this);
    };
    try {
      store.commit(long, Array.from({ length: LARGE / PAGE_SIZE }, (_, i) => i), durability);
      if (checkpoint) store.checkpoint();
    } finally {
      Object.assign(FileSystemSyncAccessHandle.prototype, { write, flush });
      store.abandon();
    }
    return done;
  },
  /** As `placeMany`, with no room left behind the pages; then a commit of one page, the first. */
  async placeInVain({ value }) {
    const { write } = FileSystemSyncAccessHandle.prototype;
    const long = new Uint8Array(LARGE).fill(value);
    const store = await PageStore.open("long", { size: LARGE });
    FileSystemSyncAccessHandle.prototype.write = function (bytes, at) {
      if (this.getSize() !== LARGE && bytes.length !== 24) {
        throw new DOMException("the disk is full", "QuotaExceededError");
      }
      return write.call(this, bytes, at);
    };
    let failure;
    try {
      store.commit(long, Array.from({ length: LARGE / PAGE_SIZE }, (_, i) => i));
    } catch (error) {
      failure = error.name;
    }
    FileSystemSyncAccessHandle.prototype.write = write;
    store.commit(long, [0]);
    store.abandon();
    return failure;
  },
  /**
   * Commits of both kinds to the heap `long`; whether it is whole when it is opened again, and again
   * when a checkpoint ended before it was done.
   */
  async growInSteps({ durability }) {
    const long = new Uint8Array(LARGE);
    const from = (first, end) => Array.from({ length: end - first }, (_, i) => first + i);
    const opened = (onPhase) => PageStore.open("long", { size: LARGE, onPhase });
    let store = await opened();
    const put = (value, pages, count, durability) => {
      pages.forEach((page) => long.fill(value, page * PAGE_SIZE, (page + 1) * PAGE_SIZE));
      store.commit(long.subarray(0, count * PAGE_SIZE), pages, durability);
    };
    const isWhole = () => {
      const read = new Uint8Array(LARGE);
      store.read(read);
      return read.every((byte, at) => byte === long[at]);
    };
    put(1, from(0, 300), 300, durability);
    put(2, [10, ...from(300, 700)], 700);
    put(3, [600], 700);
    const found = [];
    for (const ends of [true, false]) {
      store.abandon();
      store = await opened((phase) => {
        if (ends && phase === "home") throw new Error("as if killed");
      });
      found.push(isWhole());
      if (!ends) continue;
      try {
        store.checkpoint();
      } catch (error) {
        found.push(error.message);
      }
    }
    store.close();
    return found;
  },
  /** A commit of the first page of the heap `long`. */
  async commitFirstOfLong({ value }) {
    const store = await PageStore.open("long", { size: LARGE });
    store.commit(new Uint8Array(LARGE).fill(value), [0]);
    store.abandon();
  },
  /** What the heap `long` has: its length, and the values of its pages. */
  async long() {
    const store = await PageStore.open("long", { size: LARGE });
    const long = new Uint8Array(LARGE);
    store.read(long);
    store.abandon();
    return [store.length,
      [...new Set(Array.from({ length: LARGE / PAGE_SIZE }, (_, i) => long[i * PAGE_SIZE]))]];
  },
  /** Commits the first page of a heap that is to be as long as `large` is; the values of all pages. */
  async commitFirst({ value }) {
    const large = new Uint8Array(LARGE).fill(value);
    const store = await PageStore.open("large", { size: LARGE });
    store.commit(large, [0]);
    store.read(large);
    store.close();
    return [...new Set(Array.from({ length: LARGE / PAGE_SIZE }, (_, i) => large[i * PAGE_SIZE]))];
  },
  /** Commits one page after the other, of which each has its own value; what a fresh handle reads. */
  async commitOneByOne({ count }) {
    for (let i = 0; i < count; i++) {
      const page = (i * 7) % PAGES;
      heap.fill(i, page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
      store.commit(heap, [page], i % 2 ? "strict" : "relaxed");
    }
    store.abandon();
    store = await PageStore.open("heap", { size });
    const read = new Uint8Array(size).fill(0xee);
    store.read(read);
    return read.every((byte, at) => byte === heap[at]);
  },
  /**
   * Runs an applet with arguments; what it printed, its exit code, and the pages of its commits.
   * With `phase` it stands still behind that step of its commit until the browser is killed.
   */
  async run({ applet: name, args, limit, phase, heaps = name, fallback, folders }) {
    const lines = [];
    // A checkpoint that was begun is ended first: its steps are not those to stand still behind.
    if (phase) (await PageStore.open(name, { size: limit })).close();
    const options = {
      heap: heaps, limit, wasi: shim(name, args, lines, folders), onPhase: standStill(phase), fallback };
    return { ...await run(await compile(name), options), lines };
  },
  /** Starts an applet that serves. */
  async serve({ applet: name, heaps = name, durability, functionTimeout, wait, fallback, commits }) {
    const wasi = shim(name, [], []);
    applet = await Applet.open(await compile(name), {
      heap: heaps, wasi, durability, functions, functionTimeout, wait, fallback, commits,
      limit: 16 * 2 ** 20 });
    return applet.exports;
  },
  /** A start that fails when the heap's files are gone: its error, and what caused the trap behind that. */
  async failStart() {
    const start = () => {
      FileSystemDirectoryHandle.prototype.getFileHandle = () =>
        Promise.reject(new DOMException("there is no such file", "NotFoundError"));
      throw new RangeError("not today");
    };
    const wasi = { wasiImport: shim("echo", [], []).wasiImport, start };
    const error = await Applet.open(await compile("echo"), { heap: "echo", wasi, limit: 16 * 2 ** 20 })
      .catch((failure) => failure);
    return [error.name, error.cause?.cause?.message];
  },
  /** Counts the calls of this function, in the heap. */
  async count({ commit }) {
    const output = await applet.call("count", "", { commit });
    return Number(new DataView(output.buffer, output.byteOffset).getBigUint64(0, true));
  },
  async call({ name, input }) {
    const output = await applet.call(name, input);
    return new TextDecoder("latin1").decode(output);
  },
  /** The parts of a streaming result, of which it takes so many. */
  async stream({ name, input, most }) {
    const [chunks, control] = [[], new AbortController()];
    const onChunk = async (bytes) => {
      await new Promise((done) => setTimeout(done));
      if (chunks.push(new TextDecoder().decode(bytes)) === most) control.abort();
    };
    const ended = await applet.call(name, input, { onChunk, signal: control.signal })
      .then(() => "ended", (error) => error.name);
    return { chunks: chunks.length, last: chunks.at(-1), ended };
  },
  /** A call that is given up before the applet has it. */
  async abortAtOnce({ name }) {
    const control = new AbortController();
    const ended = applet.call(name, "", { signal: control.signal }).then(() => "ended", (error) => error.name);
    control.abort();
    return await ended;
  },
  /**
   * Calls that are given up so many moments behind their making, from none on: how each ends, and what a call
   * behind it comes to.
   */
  async abortInMoments({ name, moments }) {
    const ends = [], answers = [];
    for (let moment = 0; moment < moments; moment++) {
      // The applet waits for a call by then.
      await new Promise((done) => setTimeout(done, 20));
      const control = new AbortController();
      const ended = applet.call(name, "", { signal: control.signal }).then(() => "ended", (error) => error.name);
      for (let count = 0; count < moment; count++) await null;
      control.abort();
      ends.push(await ended);
      answers.push(await steps.call({ name: "echo", input: "on" }).catch((error) => error.name));
    }
    return { ends, answers };
  },
  /** A call that is made and waited for while a part of a result is taken: how the one with the result ends. */
  async callInChunk({ name, input, isShared }) {
    const one = isShared ? shared : applet;
    const onChunk = async () => void await one.call("echo", "inner");
    const ended = one.call(name, input, { onChunk }).then(() => "ended", (error) => error.message);
    return await Promise.race([ended, new Promise((done) => setTimeout(done, 5000, "no end"))]);
  },
  /** A streaming result of which nobody takes the second part: how the call ends. */
  async streamIntoNothing({ name, input, isLater }) {
    let parts = 0;
    const refuse = () => { throw new RangeError("there is no place for it"); };
    const onChunk = () => ++parts < 2 ? undefined : isLater ? Promise.resolve().then(refuse) : refuse();
    return await applet.call(name, input, { onChunk }).then(() => "ended", (error) => error.name);
  },
  /** How a call fails: its error, the words of that, and what caused it. */
  async callFailure({ name, input }) {
    const error = await applet.call(name, input).catch((failure) => failure);
    return [error.name, error.message, error.cause?.name, error.cause?.cause?.name];
  },
  /** A part of the heap as an input, behind a call that has memory grow: what is left of it, and if it came. */
  async callWithHeap() {
    await applet.call("count");
    const part = applet.heap().subarray(0, 1000), given = part.slice();
    const [, output] = await Promise.all(
      [new Uint8Array(8 * 2 ** 20), part].map((input) => applet.call("echo", input)));
    return [part.length, output.length === given.length && output.every((byte, at) => byte === given[at])];
  },
  /** Several calls that do not wait for one another. */
  async callAtOnce({ name, inputs }) {
    const outputs = await Promise.all(inputs.map((input) => applet.call(name, input)));
    return outputs.map((output) => new TextDecoder().decode(output));
  },
  logged: () => logged,
  /** What a function of the host returns, in applets that are started from now on. */
  returnFromHost: ({ value }) => { functions.kv_set = () => value; },
  weaker: () => applet.weaker,
  changedPages: () => applet.changedPages,
  heapBase: () => applet.heapBase(),
  /** Stores to the heap from outside, where its last pages are free; then commits. */
  async storeOutside({ at, value }) {
    applet.heap()[at] = value;
    return [applet.changedPages, await applet.commit(), applet.changedPages];
  },
  commitNow: () => applet.commit(),
  fillHeap({ from, value }) {
    applet.heap().fill(value, from);
  },
  heapByte: ({ at }) => applet.heap()[at],
  takeSnapshot: ({ heap: of, name }) => takeSnapshot(of, name).then(({ bytes }) => bytes),
  /** How each function of snapshots fails for a heap: the name of its error, and the words. */
  async snapshotFailures({ heap: of }) {
    const failures = [];
    for (const work of [takeSnapshot, snapshots, rollBack, removeSnapshot]) {
      failures.push(await work(of, "first").then(() => null, ({ name, message }) => [name, message]));
    }
    return failures;
  },
  snapshots: ({ heap: of }) => snapshots(of).then((all) => all.map(({ name }) => name)),
  rollBack: ({ heap: of, name }) => rollBack(of, name),
  /**
   * Goes back to a snapshot, and stands still before the write or flush of this number until the browser is
   * killed.
   */
  async stallRollBack({ heap: of, name, nth }) {
    const { write, flush } = FileSystemSyncAccessHandle.prototype;
    let count = 0;
    const stand = () => {
      count += 1;
      if (count !== nth) return;
      postMessage({ ok: "stalled" });
      for (;;);
    };
    FileSystemSyncAccessHandle.prototype.write = function (...rest) {
      stand();
      return write.apply(this, rest);
    };
    FileSystemSyncAccessHandle.prototype.flush = function () {
      stand();
      return flush.call(this);
    };
    await rollBack(of, name);
    Object.assign(FileSystemSyncAccessHandle.prototype, { write, flush });
  },
  removeSnapshot: ({ heap: of, name }) => removeSnapshot(of, name),
  storageState,
  keepStorage,
  /** Shares an applet that serves with the other tabs. */
  async share({ applet: name, functionTimeout, failures = 0, starts = Infinity }) {
    shared = await SharedApplet.open(name, async () => {
      if (failures-- > 0) throw new RangeError("no network");
      if (starts-- <= 0) await new Promise(() => {});
      return Applet.open(await compile(name), {
        heap: name, wasi: shim(name, [], []), functions, functionTimeout, wait: true,
        limit: 16 * 2 ** 20 });
    });
    return shared.isOwner;
  },
  async sharedCall({ name, input }) {
    return new TextDecoder("latin1").decode(await shared.call(name, input));
  },
  /** A call that is made as soon as the applet has trapped. */
  async sharedRetry({ name, input }) {
    await shared.call("crash").catch(() => {});
    const again = steps.sharedCall({ name, input });
    return await Promise.race([again, new Promise((done) => setTimeout(done, 10_000, "no answer"))]);
  },
  /**
   * Shared calls that are made so many moments behind the end of the applet, from none on, of an applet that
   * is none: how each ends.
   */
  async sharedAtEnd({ moments }) {
    const ends = [];
    for (let moment = 0; moment < moments; moment++) {
      const started = [];
      const own = await SharedApplet.open(`ending ${moment}`, async () => {
        const one = { call: async () => new Uint8Array(1), close: async () => {} };
        one.ended = new Promise((done) => { one.end = done; });
        started.push(one);
        return one;
      });
      started[0].end();
      for (let count = 0; count < moment; count++) await null;
      const call = own.call("any").then(() => "answered", (error) => error.name);
      ends.push(await Promise.race([call, new Promise((done) => setTimeout(done, 2000, "no answer"))]));
      await own.close();
    }
    return ends;
  },
  /**
   * What a tab that runs a shared applet, which is none, answers: a call behind the late words of a tab that
   * ran it before, and who asks for the one that runs it, before this tab leaves and while it does.
   */
  async sharedLateWords() {
    let isClosed;
    const one = { call: async () => new Uint8Array(1), ended: new Promise(() => {}),
      close: () => new Promise((done) => { isClosed = done; }) };
    const own = await SharedApplet.open("late", async () => one);
    const channel = new BroadcastChannel("holdfast:late");
    const asks = () => new Promise((done) => {
      setTimeout(done, 1000, "nobody");
      channel.onmessage = ({ data }) => data.kind === "owner" && done("owner");
      channel.postMessage({ kind: "who" });
    });
    for (const kind of ["owner", "leaving"]) channel.postMessage({ kind, owner: "another" });
    const before = await asks();
    const call = own.call("any").then(() => "answered", (error) => error.name);
    const answer = await Promise.race([call, new Promise((done) => setTimeout(done, 2000, "no answer"))]);
    const closing = own.close();
    const after = await asks();
    isClosed();
    await closing;
    channel.close();
    return { before, answer, after };
  },
  /** Closes what runs twice at once: which of both ends first. */
  async closeTwice({ what }) {
    const one = what === "applet" ? applet : shared;
    const ended = [];
    const first = one.close().then(() => ended.push("first"));
    await one.close();
    ended.push("second");
    await first;
    return ended;
  },
  /** How a shared call that fails does: whether its error is one of the class of its name. */
  async sharedFailure({ name }) {
    const error = await shared.call(name).catch((failure) => failure);
    return [error.name, error instanceof AppletEndedError];
  },
  /** A shared call that is given up after a while: how it ends. */
  async sharedInTime({ name, ms }) {
    const ended = shared.call(name, "", { signal: AbortSignal.timeout(ms) })
      .then(() => "ended", (error) => error.name);
    return await Promise.race([ended, new Promise((done) => setTimeout(done, 5000, "no answer"))]);
  },
  /** Has the classes of the package's errors get names as a minifier gives them. */
  minify() {
    for (const one of Object.values(holdfast)) {
      if (one.prototype instanceof Error) Object.defineProperty(one, "name", { value: "a" });
    }
  },
  /** Leaves while it takes a part of a shared result: how the call ends, and what nobody caught. */
  async leaveInStream({ name, input }) {
    const uncaught = [];
    addEventListener("unhandledrejection", (event) => {
      event.preventDefault();
      uncaught.push(event.reason.name);
    });
    const onChunk = () => shared.close();
    const ended = await shared.call(name, input, { onChunk }).then(() => "ended", (error) => error.name);
    await new Promise((done) => setTimeout(done, 300));
    return [ended, uncaught];
  },
  /** As `stream`, of the shared applet. */
  async sharedStream({ name, input, most }) {
    const [chunks, control] = [[], new AbortController()];
    const onChunk = (bytes) => {
      if (chunks.push(new TextDecoder().decode(bytes)) === most) control.abort();
    };
    const ended = await shared.call(name, input, { onChunk, signal: control.signal })
      .then(() => "ended", (error) => error.name);
    return { chunks: chunks.length, ended };
  },
  /** The same bytes as every kind of input, and what is none; a result for each. */
  async callWithAll({ name }) {
    const bytes = new TextEncoder().encode("abcd");
    const all = ["abcd", bytes, bytes.buffer, new DataView(bytes.buffer), new Uint16Array(bytes.buffer), 7, null];
    return await Promise.all(all.map((input) => applet.call(name, input)
      .then((output) => new TextDecoder().decode(output), (error) => error.name)));
  },
  isOwner: () => shared.isOwner,
  unshare: () => shared.close(),
  stop: async () => (await applet.close()) ?? null,
  async importHeap({ name, base64, fallback, replace }) {
    await importHeap(name, new Blob([bytesOf(base64)]), { fallback, replace });
  },
  heapNames: ({ fallback }) => heapNames({ fallback }),
  removeHeap: ({ name, fallback }) => removeHeap(name, { fallback }),
  /** The limit of a heap of so many bytes that is opened without one, and of its stream, if it has one. */
  async limitOf({ bytes, limit }) {
    const broad = await PageStore.open("broad", { size: bytes });
    broad.commit(new Uint8Array(bytes), [0]);
    const header = new Uint8Array(256);
    new DataView(header.buffer).setBigUint64(40, BigInt(limit ?? 0), true);
    if (limit !== undefined) await broad.keepOrigin(header);
    broad.close();
    const heaps = await Heaps.open({ heap: "broad" }, "strict");
    const found = heaps.all[0].limit;
    heaps.close();
    await removeHeap("broad");
    return found;
  },
  /** Numbers in an array of a heap of JavaScript, in place from the second opening on. */
  async numbers({ name, count, write }) {
    const opened = await PersistentHeap.open(name);
    try {
      const array = PersistentArray.open(opened, "numbers", u32);
      if (write) for (let i = array.length; i < count; i++) array.push(i);
      return [array.length, Array.from(array.view()).every((value, i) => value === i)];
    } finally {
      await opened.close({ commit: write });
    }
  },
  async openFailure({ name, ...options }) {
    const opened = await PageStore.open(name, { size, ...options });
    opened.close();
  },
  /** Changes a bit of one of these numbers where it lies in the image. */
  async damageNumber({ heap: of, value }) {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(of);
    const handle = await (await folder.getFileHandle("image")).createSyncAccessHandle();
    const words = new Uint32Array(handle.getSize() / 4);
    handle.read(words, { at: 0 });
    const at = words.findIndex((word, i) => word === value && words[i + 1] === value + 1);
    handle.write(Uint32Array.of(value ^ 1), { at: at * 4 });
    handle.close();
  },
  /** Removes or shortens a file of a heap. */
  async cut({ heap: of, file, bytes }) {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(of);
    if (bytes === undefined) return void await folder.removeEntry(file);
    const handle = await (await folder.getFileHandle(file)).createSyncAccessHandle();
    handle.truncate(bytes);
    handle.close();
  },
  /** A folder of the page's own with a file: what is in it when it was opened as a heap for reading. */
  async ownFolder({ name }) {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(name, { create: true });
    await folder.getFileHandle("own", { create: true });
    const failure = await PageStore.open(name, { size, access: "read-only" }).catch((error) => error.name);
    const files = [];
    for await (const file of folder.keys()) files.push(file);
    return [failure, files];
  },
  /**
   * Files and folders of the page's own, and one that it keeps in the folder of a heap: how they fail as
   * heaps, which heaps are listed, and what is in the folders when these are removed.
   */
  async ownFiles() {
    const root = await navigator.storage.getDirectory();
    const folderWith = async (name, ...files) => {
      const folder = await root.getDirectoryHandle(name, { create: true });
      for (const file of files) await folder.getFileHandle(file, { create: true });
      return folder;
    };
    const failure = (work) => work.then(() => null, (error) => error.name);
    const folders = [await folderWith("photos", "own"), await folderWith("diary", "journal", "own")];
    await root.getFileHandle("notes", { create: true });
    const failures = [];
    for (const name of ["photos", "diary", "notes"]) {
      failures.push(await failure(PageStore.open(name, { size })), await failure(removeHeap(name)));
    }
    (await PageStore.open("heap", { size })).close();
    folders.push(await folderWith("heap", "own"));
    const listed = await heapNames();
    await removeHeap("heap");
    const files = [];
    for (const folder of folders) {
      const names = [];
      for await (const name of folder.keys()) names.push(name);
      files.push(names.sort().join());
    }
    return { failures, listed, files, left: await heapNames() };
  },
  /** Removes a heap of which the browser says so often that a tab that died still has it. */
  async removeInUse({ name, times }) {
    const { removeEntry } = FileSystemDirectoryHandle.prototype;
    FileSystemDirectoryHandle.prototype.removeEntry = function (...rest) {
      if (times-- > 0) return Promise.reject(new DOMException("in use", "NoModificationAllowedError"));
      return removeEntry.apply(this, rest);
    };
    try {
      await removeHeap(name);
    } finally {
      FileSystemDirectoryHandle.prototype.removeEntry = removeEntry;
    }
  },
  /** Folders of the origin, heaps or not. */
  async folders() {
    const names = [];
    for await (const name of (await navigator.storage.getDirectory()).keys()) names.push(name);
    return names.sort();
  },
  /** Opens two heaps again and again, and waits for both; how often it had them. */
  async openBoth({ heaps, rounds }) {
    let count = 0;
    for (; count < rounds; count++) {
      const options = { heap: heaps, wasi: shim("ledgers", [], []), wait: AbortSignal.timeout(8000), limit: 2 ** 20 };
      await (await Applet.open(await compile("ledgers"), options)).close();
    }
    return count;
  },
  /** Has every allocation of JavaScript above this many bytes fail. */
  boundAllocations({ bytes }) {
    const { Uint8Array: Real } = globalThis;
    globalThis.Uint8Array = new Proxy(Real, {
      construct(target, rest, self) {
        if (typeof rest[0] === "number" && rest[0] > bytes) throw new RangeError("Array buffer allocation failed");
        return Reflect.construct(target, rest, self);
      },
    });
  },
  async exportHeap({ name, limit, fallback }) {
    const stream = await exportHeap(name, limit, { fallback });
    return base64Of(new Uint8Array(await stream.arrayBuffer()));
  },
  /** The stream of the running applet's heap, asked for twice at once, and whether both are the same. */
  async exportOpen() {
    const streams = await Promise.all([applet.exportHeap(), applet.exportHeap()]);
    const [one, other] = await Promise.all(streams.map(async (stream) =>
      new Uint8Array(await stream.arrayBuffer())));
    return { stream: base64Of(one), isSame: one.length === other.length && one.every((byte, at) => byte === other[at]) };
  },
  /**
   * Closes the running applet, and a heap of JavaScript, while their first exports are about to keep the
   * header of the stream: what ended first.
   */
  async closeInExport() {
    const kept = await PersistentHeap.open("kept");
    kept.commit();
    FileSystemDirectoryHandle.prototype.getFileHandle = async function (name, ...rest) {
      if (name === "origin") await new Promise((done) => setTimeout(done, 200));
      return await findOfTheBrowser.call(this, name, ...rest);
    };
    const ended = [];
    for (const one of [applet, kept]) {
      const exporting = one.exportHeap().then(() => ended.push("exported"));
      await one.close();
      ended.push("closed");
      await exporting;
    }
    FileSystemDirectoryHandle.prototype.getFileHandle = findOfTheBrowser;
    return ended;
  },
  /** Has the browser refuse files, as some do in private windows. */
  refuseFiles() {
    navigator.storage.getDirectory = () =>
      Promise.reject(new DOMException("it is not allowed", "SecurityError"));
  },
  /** Has the browser refuse databases with this error. */
  refuseDatabases({ error }) {
    IDBFactory.prototype.open = () => { throw new DOMException("it is not allowed", error); };
  },
  /** Has the browser not tell which databases there are. */
  hideDatabases() {
    IDBFactory.prototype.databases = () => Promise.reject(new DOMException("it did not work", "UnknownError"));
  },
  /** A commit to IndexedDB of which so many values are put, and no more: its error. */
  async commitHalf({ puts }) {
    const { put } = IDBObjectStore.prototype;
    const half = await PersistentHeap.open("half", { fallback: "indexeddb" });
    const numbers = PersistentArray.open(half, "numbers", u32);
    numbers.length = 16 * PAGE_SIZE;
    numbers.view().fill(1);
    half.commit();
    await half.settled();
    IDBObjectStore.prototype.put = function (...rest) {
      if (puts-- <= 0) throw new DOMException("there is no memory", "DataCloneError");
      return put.apply(this, rest);
    };
    numbers.view().fill(2);
    half.commit();
    return await half.settled().then(() => null, (error) => error.name);
  },
  /** The numbers that are stored of that heap. */
  async numbersOfHalf() {
    const half = await PersistentHeap.open("half", { fallback: "indexeddb", wait: true });
    const found = [...new Set(PersistentArray.open(half, "numbers", u32).view())];
    await half.close({ commit: false });
    return found;
  },
  /** Has the browser not find out which files there are, and find out again. */
  blind() {
    FileSystemDirectoryHandle.prototype.getFileHandle = () =>
      Promise.reject(new DOMException("it did not work", "UnknownError"));
  },
  see() {
    FileSystemDirectoryHandle.prototype.getFileHandle = findOfTheBrowser;
  },
  /**
   * Commits of the running applet, of a run, and of a heap of JavaScript, and the end of that, while the browser
   * does not find out which files there are: how each fails.
   */
  async commitBlind() {
    const failure = (work) => work.then(() => null, (error) => error.name);
    const kept = await PersistentHeap.open("kept");
    kept.allocate(8);
    const wasi = shim("guestbook", ["add", "Ada"], []);
    const start = (instance) => {
      steps.blind();
      return wasi.start(instance);
    };
    const options = { heap: "guestbook", limit: 16 * 2 ** 20, wasi: { wasiImport: wasi.wasiImport, start } };
    const failures = [await failure(run(await compile("guestbook"), options))];
    kept.commit();
    failures.push(await failure(applet.commit()), await failure(kept.settled()), await failure(kept.close()));
    steps.see();
    return failures;
  },
  /** Has the disk be full for the file that is written to first from now on, and for no other. */
  fillFirstFile() {
    const { write } = FileSystemSyncAccessHandle.prototype;
    let full;
    FileSystemSyncAccessHandle.prototype.write = function (...rest) {
      full ??= this;
      if (this === full) throw new DOMException("the disk is full", "QuotaExceededError");
      return write.apply(this, rest);
    };
  },
  emptyDisk() {
    FileSystemSyncAccessHandle.prototype.write = writeOfTheBrowser;
  },
  /** Has a flush fail, as a broken disk has it. */
  breakDisk() {
    FileSystemSyncAccessHandle.prototype.flush = () => {
      throw new DOMException("the disk is broken", "InvalidStateError");
    };
  },
  /** Has the disk be full for one write of a checkpoint; then a commit, and no close. */
  failCheckpoint({ nth, value }) {
    const { write } = FileSystemSyncAccessHandle.prototype;
    let count = 0;
    FileSystemSyncAccessHandle.prototype.write = function (...rest) {
      count += 1;
      if (count === nth) throw new DOMException("the disk is full", "QuotaExceededError");
      return write.apply(this, rest);
    };
    let failure = null;
    try {
      store.checkpoint();
    } catch (error) {
      failure = error.name;
    }
    FileSystemSyncAccessHandle.prototype.write = write;
    steps.commit({ value });
    store.abandon();
    return failure;
  },
  /** Commits these pages of a heap of memory that is zero otherwise, and keeps the sums. */
  async commitWithSums({ pages, value }) {
    const memory = new WebAssembly.Memory({ initial: SPARSE / 16 });
    const bytes = new Uint8Array(memory.buffer);
    const sparse = await PageStore.open("sparse", { size: bytes.length });
    sparse.read(bytes);
    const sums = new PageSums(memory, 0);
    sums.store(Array.from({ length: SPARSE }, (_, page) => page));
    for (const page of pages) bytes[page * PAGE_SIZE + page % PAGE_SIZE] = value;
    sparse.commit(bytes, pages);
    sparse.checkpoint();
    sums.store(pages);
    sparse.keepSums(sums.stored);
    sparse.close();
  },
  /** Commits one page, and leaves it in the journal or at home, with the sums as they were. */
  async commitWithoutSums({ page, value, isHome }) {
    const bytes = new Uint8Array(SPARSE * PAGE_SIZE);
    const sparse = await PageStore.open("sparse", { size: bytes.length });
    sparse.read(bytes);
    bytes.fill(value, page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
    sparse.commit(bytes, [page]);
    if (isHome) sparse.checkpoint();
    sparse.abandon();
  },
  /** Reads a heap by the kept sums, and whole: whether that is one, and how much was read of its image. */
  async readBySums() {
    const bytes = new Uint8Array(SPARSE * PAGE_SIZE), whole = new Uint8Array(SPARSE * PAGE_SIZE);
    const sparse = await PageStore.open("sparse", { size: bytes.length });
    const kept = sparse.keptSums();
    const { read } = FileSystemSyncAccessHandle.prototype;
    let readBytes = 0;
    FileSystemSyncAccessHandle.prototype.read = function (into, at) {
      readBytes += into.length;
      return read.call(this, into, at);
    };
    const told = [];
    sparse.read(bytes, (from, end) => told.push([from, end]), kept);
    FileSystemSyncAccessHandle.prototype.read = read;
    sparse.read(whole);
    sparse.abandon();
    const isSame = bytes.every((byte, at) => byte === whole[at]);
    return { isKept: kept !== undefined, isSame, pages: readBytes / PAGE_SIZE, told };
  },
  /**
   * Commits one page, and ends the checkpoint before it is done; whether all is there for who exports it
   * then, and for a reader that opens it.
   */
  async readBegunCheckpoint({ page, value }) {
    const bytes = new Uint8Array(SPARSE * PAGE_SIZE);
    const onPhase = (phase) => {
      if (phase === "home") throw new Error("as if killed");
    };
    const begun = await PageStore.open("sparse", { size: bytes.length, onPhase });
    begun.read(bytes);
    bytes.fill(value, page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
    begun.commit(bytes, [page]);
    const found = [];
    const look = (store) => {
      try {
        found.push(store.readWhole().every((byte, at) => byte === bytes[at]));
      } catch (error) {
        found.push(error.name);
      }
      store.abandon();
    };
    try {
      begun.checkpoint();
    } catch { /* it is as if the tab was killed */ }
    look(begun);
    look(await PageStore.open("sparse", { size: bytes.length, access: "read-only" }));
    return found;
  },
  /** Starts an applet that serves, and has it count; how much of the image was read. */
  async readOfApplet({ applet: name }) {
    const { read } = FileSystemSyncAccessHandle.prototype;
    let readBytes = 0;
    FileSystemSyncAccessHandle.prototype.read = function (into, at) {
      readBytes += into.length;
      return read.call(this, into, at);
    };
    await steps.serve({ applet: name });
    const count = await steps.count({ commit: false });
    FileSystemSyncAccessHandle.prototype.read = read;
    await applet.commit();
    return { readBytes, heapBytes: applet.heap().length, count, changed: applet.changedPages };
  },
  /** An applet whose module never comes. */
  async serveNothing({ heap: of }) {
    const module = new Promise((_, fail) => setTimeout(fail, 50, new TypeError("no network")));
    await Applet.open(module, { heap: of, wasi: shim("none", [], []), limit: 16 * 2 ** 20 });
  },
  /** Has the browser be one without stack switching (JSPI), or vectors (SIMD), or the page be no secure one. */
  without({ what }) {
    if (what === "JSPI") delete WebAssembly.Suspending;
    else if (what === "locks") Object.defineProperty(navigator, "locks", { value: undefined });
    else WebAssembly.Module = new Proxy(WebAssembly.Module, {
      construct() { throw new WebAssembly.CompileError(what); } });
  },
  /** Has the heap say that its pointers lead to another place. */
  async setBase({ name, base }) {
    const moved = await PageStore.open(name, { size: 16 * 2 ** 20 });
    const bytes = new Uint8Array(moved.length);
    moved.read(bytes);
    new DataView(bytes.buffer).setBigUint64(80, BigInt(base), true);
    moved.commit(bytes, [0]);
    moved.close();
  },
  /** Changes a byte of a file of the heap. */
  async damage({ file, at, heap: of = "heap" }) {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle(of);
    const handle = await (await folder.getFileHandle(file)).createSyncAccessHandle();
    const byte = new Uint8Array(1);
    handle.read(byte, { at });
    byte[0] ^= 1;
    handle.write(byte, { at });
    handle.close();
  },
};

onmessage = async ({ data: { step, ...rest } }) => {
  try {
    postMessage({ ok: (await steps[step](rest)) ?? null });
  } catch (error) {
    if (!error.name?.endsWith("Error")) console.error(error);
    postMessage({ error: error.name, message: error.message });
  }
};
postMessage({ ok: "ready" });
