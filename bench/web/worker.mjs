// The steps of what is measured in a page, in a dedicated worker. Times are in milliseconds, from the
// first line of a step: the worker runs then, as it does behind a reload.
import { Applet, PAGE_SIZE, PageStore, run } from "/dist/index.js";
import { Heaps } from "/dist/heaps.js";
import { ConsoleStdout, Directory, File, PreopenDirectory, SyncOPFSFile, WASI,
} from "/node_modules/@bjorn3/browser_wasi_shim/dist/index.js";

const MIB = 2 ** 20;
const SCRATCH = 64 * MIB;
const encoder = new TextEncoder(), decoder = new TextDecoder();

function shim(name, lines, args = [], folders = []) {
  const print = ConsoleStdout.lineBuffered((line) => lines.push(line));
  return new WASI([name, ...args], [], [print, print, print, ...folders]);
}
const compile = (name) => WebAssembly.compileStreaming(fetch(`/applets/${name}.wasm`));
const openApplet = async (name, rest) =>
  await Applet.open(await compile(name), { wasi: shim(name, []), ...rest });

/** Numbers that are the same in each run. */
function random(seed) {
  let state = seed;
  return () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d);
    state = Math.imul(state ^ (state >>> 12), 0x297a2d39);
    state ^= state >>> 15;
    return (state >>> 0) / 2 ** 32;
  };
}

async function file(name) {
  const root = await navigator.storage.getDirectory();
  const handle = await root.getFileHandle(name, { create: true });
  return await handle.createSyncAccessHandle();
}

async function keepFile(name, bytes) {
  const handle = await file(name);
  handle.truncate(0);
  handle.write(bytes, { at: 0 });
  handle.flush();
  handle.close();
}

async function keptFile(name) {
  const handle = await file(name);
  const bytes = new Uint8Array(handle.getSize());
  handle.read(bytes, { at: 0 });
  handle.close();
  return bytes;
}

/** One object store of IndexedDB. */
async function database() {
  return await new Promise((done, failed) => {
    const request = indexedDB.open("bench", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("state");
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
}

async function inDatabase(mode, ask) {
  const opened = await database();
  try {
    return await new Promise((done, failed) => {
      const transaction = opened.transaction("state", mode, { durability: "strict" });
      const request = ask(transaction.objectStore("state"));
      transaction.oncomplete = () => done(request.result);
      transaction.onerror = transaction.onabort = () => failed(transaction.error);
    });
  } finally {
    opened.close();
  }
}
const put = (key, value) => inDatabase("readwrite", (store) => store.put(value, key));
const get = (key) => inDatabase("readonly", (store) => store.get(key));

/** What `save` of the classifier streams, whole. */
async function saved(applet) {
  const parts = [];
  const last = await applet.call("save", "", { onChunk: (part) => void parts.push(part.slice()) });
  return new Uint8Array(await new Blob([...parts, last]).arrayBuffer());
}

/** What a page would keep in the place of the classifier's heap. */
function counts(text) {
  const [categories, words] = text.split("\n\n");
  const parse = (lines) => lines.split("\n").filter((line) => line !== "").map((line) => {
    const [name, ...numbers] = line.split("\t");
    return { name, numbers: numbers.map(Number) };
  });
  return { categories: parse(categories), words: parse(words) };
}

const steps = {
  async fillStore({ name, size }) {
    const store = await PageStore.open(name, { size });
    const heap = new Uint8Array(size);
    const next = random(1);
    for (let at = 0; at < size; at += 64) heap[at] = 256 * next();
    const pages = Array.from({ length: size / PAGE_SIZE }, (_, page) => page);
    for (let from = 0; from < pages.length; from += 4096) store.commit(heap, pages.slice(from, from + 4096));
    store.close();
    await keepFile(`${name}-plain`, heap);
    return {};
  },
  async restoreStore({ name, size }) {
    const started = performance.now();
    const store = await PageStore.open(name, { size });
    const memory = new WebAssembly.Memory({ initial: size / 65_536 });
    store.read(new Uint8Array(memory.buffer));
    const ms = performance.now() - started;
    store.close();
    const readStarted = performance.now();
    const handle = await file(`${name}-plain`);
    const plain = new WebAssembly.Memory({ initial: size / 65_536 });
    handle.read(new Uint8Array(plain.buffer), { at: 0 });
    handle.close();
    return { ms, readMs: performance.now() - readStarted };
  },

  /** Has the classifier learn words until its heap has nearly that size; keeps the same as JSON. */
  async makeState({ name, size }) {
    const limit = Math.max(size, 2 * MIB) * 2;
    const applet = await openApplet("mail", { heap: name, limit, durability: "relaxed" });
    const next = random(2);
    const words = Math.floor(size / 88);
    for (let from = 0; from < words; from += 4000) {
      const mail = Array.from({ length: Math.min(4000, words - from) }, (_, i) =>
        `w${(from + i).toString(36)}x${Math.floor(next() * 36 ** 4).toString(36)}`);
      await applet.call("learn", `${from % 3 ? "work" : "home"}\n${mail.join(" ")}`);
    }
    const heapBytes = applet.heap().length;
    const state = counts(decoder.decode(await saved(applet)));
    await applet.close();
    const json = JSON.stringify(state);
    await put(`${name}-json`, json);
    await put(`${name}-clone`, new Map(state.words.map(({ name: word, numbers }) => [word, numbers])));
    return { heapBytes, jsonBytes: json.length };
  },
  async heapState({ name, size }) {
    const started = performance.now();
    const limit = Math.max(size, 2 * MIB) * 2;
    const applet = await openApplet("mail", { heap: name, limit });
    const answer = decoder.decode(await applet.call("count"));
    const ms = performance.now() - started;
    if (!answer.includes("work\t")) throw new Error(`the state is ${answer}`);
    await applet.close();
    return { ms };
  },
  async jsonState({ name }) {
    const started = performance.now();
    const state = JSON.parse(await get(`${name}-json`));
    const byWord = new Map(state.words.map(({ name: word, numbers }) => [word, numbers]));
    const ms = performance.now() - started;
    if (byWord.size === 0) throw new Error("the state is empty");
    return { ms };
  },
  async cloneState({ name }) {
    const started = performance.now();
    const byWord = await get(`${name}-clone`);
    const ms = performance.now() - started;
    if (byWord.size === 0) throw new Error("the state is empty");
    return { ms };
  },

  /** Changes 100 pages all over a heap and commits; the same bytes to a plain file. */
  async commits({ size, count }) {
    const heaps = await Heaps.open({ heap: `commit-${size}`, limit: size }, "strict", false);
    heaps.memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536 });
    if (heaps.imports.attach(0) !== 0 || heaps.imports.grow(BigInt(size)) !== BigInt(size)) {
      throw new Error("the heap did not appear");
    }
    const heap = heaps.all[0].bytes(heaps.memory);
    const next = random(3);
    for (let at = 0; at < size; at += 64) heap[at] = 256 * next();
    heaps.commit();
    heaps.all[0].store.checkpoint();
    const plainFile = await file("plain");
    const bytes = new Uint8Array(100 * PAGE_SIZE);
    const pages = size / PAGE_SIZE;
    const pageOf = (i) => Math.floor(i * pages / 100) + Math.floor(next() * Math.floor(pages / 100));
    const [ours, found, plain] = [[], [], []];
    const ourTurn = () => {
      for (let i = 0; i < 100; i++) heap[pageOf(i) * PAGE_SIZE + 17] += 1;
      let started = performance.now();
      heaps.all[0].changedPages();
      found.push(performance.now() - started);
      started = performance.now();
      const changed = heaps.commit();
      ours.push(performance.now() - started);
      if (changed !== 100) throw new Error(`${changed} pages changed`);
    };
    const plainTurn = (round) => {
      bytes.fill(round);
      const started = performance.now();
      plainFile.write(bytes, { at: 0 });
      plainFile.flush();
      plain.push(performance.now() - started);
    };
    for (let round = 0; round < count * 4; round++) {
      if (round % 2) { ourTurn(); plainTurn(round); } else { plainTurn(round); ourTurn(); }
    }
    heaps.close();
    plainFile.close();
    return { ours, found, plain };
  },

  /** Learns mails and keeps what was learnt as text, too; which share of the others it knows. */
  async learn({ learn, test }) {
    const applet = await openApplet("mail", { heap: "mail", limit: SCRATCH, durability: "relaxed" });
    const fetched = await bodies(learn);
    const started = performance.now();
    for (const { category, mail } of fetched) {
      const input = new Uint8Array(category.length + 1 + mail.length);
      input.set(encoder.encode(`${category}\n`));
      input.set(mail, category.length + 1);
      await applet.call("learn", input);
    }
    const ms = performance.now() - started;
    let right = 0;
    for (const { category, mail } of await bodies(test)) {
      const answer = decoder.decode(await applet.call("classify", mail));
      if (answer.startsWith(`${category}\t`)) right += 1;
    }
    const words = Number(decoder.decode(await applet.call("count")).trim().split("\n").at(-1));
    const text = await saved(applet);
    await applet.close();
    await keepFile("mail-counts", text);
    await put("mail-counts", text);
    return { words, textBytes: text.length, ms, share: right / test.length };
  },
  /** Classifies mails with what was learnt, which is had in one of three ways. */
  async classify({ way, mails }) {
    const fetched = await bodies(mails);
    const started = performance.now();
    const heap = way === "heap" ? "mail" : "none";
    const applet = await openApplet("mail", { heap, limit: SCRATCH });
    if (way === "opfs") await applet.call("load", await keptFile("mail-counts"));
    if (way === "indexeddb") await applet.call("load", await get("mail-counts"));
    const answers = [];
    for (const { mail } of fetched) answers.push(decoder.decode(await applet.call("classify", mail)));
    const ms = performance.now() - started;
    await applet.close();
    if (!answers.every((answer) => answer.includes("ham\t"))) throw new Error("nothing was learnt");
    return { ms };
  },

  async keepDictionaries({ lists }) {
    for (const list of lists) {
      const bytes = new Uint8Array(await (await fetch(`/dict/${list}`)).arrayBuffer());
      await keepFile(list, bytes);
      await put(list, bytes);
    }
    return {};
  },
  async spell({ way, lists }) {
    const text = new Uint8Array(await (await fetch("/text/GPL-3")).arrayBuffer());
    const started = performance.now();
    const module = await compile("spellcheck");
    const handles = [];
    const contents = new Map();
    for (const list of way === "heap" ? [] : lists) {
      if (way === "opfs") {
        const handle = await file(list);
        handles.push(handle);
        contents.set(list, new SyncOPFSFile(handle, { readonly: true }));
      } else {
        contents.set(list, new File(await get(list), { readonly: true }));
      }
    }
    const isBuilt = way !== "heap" || await hasHeap("spell");
    if (!isBuilt) for (const list of lists) contents.set(list, new File(await get(list)));
    const folders = [new PreopenDirectory("/dict", contents),
      new PreopenDirectory("/text", new Map([["GPL-3", new File(text)]]))];
    const lines = [];
    const args = [...(way === "heap" ? [] : ["--volatile"]),
      ...(way === "heap" && isBuilt ? [] : ["--dict", "/dict"]), "/text/GPL-3"];
    await run(module, { heap: "spell", limit: 128 * MIB, durability: "relaxed",
      wasi: shim("spellcheck", lines, args, folders) });
    const ms = performance.now() - started;
    handles.forEach((handle) => handle.close());
    return { ms, unknown: lines.length };
  },

  /** Starts an applet, calls it once, and ends it. */
  async callWhole({ applet: name, name: wanted, heap, path }) {
    const input = new Uint8Array(await (await fetch(path)).arrayBuffer());
    const started = performance.now();
    const applet = await openApplet(name, heap ? { heap, limit: SCRATCH } : {});
    const output = await applet.call(wanted, input);
    await applet.close();
    const ms = performance.now() - started;
    return { ms, output: btoa(String.fromCharCode(...output)) };
  },
};

async function hasHeap(name) {
  const store = await PageStore.open(name, { size: 128 * MIB });
  const { length } = store;
  store.close();
  return length > 0;
}

async function bodies(mails) {
  const found = [];
  for (const { folder, name } of mails) {
    const mail = new Uint8Array(await (await fetch(`/mails/${folder}/${name}`)).arrayBuffer());
    found.push({ category: folder.replace(/-\d$/, ""), mail });
  }
  return found;
}

onmessage = async ({ data: { step, ...rest } }) => {
  try {
    postMessage({ ok: await steps[step](rest) });
  } catch (error) {
    postMessage({ error: `${error.name}: ${error.message}` });
  }
};
postMessage({ ok: "ready" });
