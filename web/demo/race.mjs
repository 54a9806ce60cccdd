// One state of a program, kept in several ways, and how long each takes until it is back. For the demo
// page and for what is measured (`cargo xtask bench web --only reload`). In a dedicated worker.
import { Applet } from "../dist/index.js";
import { ConsoleStdout, WASI } from "../node_modules/@bjorn3/browser_wasi_shim/dist/index.js";

const MIB = 2 ** 20;
/** Bytes of the heap for each word, about. */
export const BYTES_PER_WORD = 88;
const decoder = new TextDecoder();

/** What an applet needs of WASI; what it prints goes to `lines`, and its complaints to `notes`. */
export function shim(name, lines, args = [], folders = [], notes = lines) {
  const [out, err] = [lines, notes].map((to) => ConsoleStdout.lineBuffered((line) => to.push(line)));
  return new WASI([name, ...args], [], [out, out, err, ...folders], { debug: false });
}

/** Numbers that are the same in each run. */
export function random(seed) {
  let state = seed;
  return () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d);
    state = Math.imul(state ^ (state >>> 12), 0x297a2d39);
    state ^= state >>> 15;
    return (state >>> 0) / 2 ** 32;
  };
}

/** A folder of the origin. */
export async function folderOf(name) {
  return await (await navigator.storage.getDirectory()).getDirectoryHandle(name, { create: true });
}

/** A file of the origin. */
export async function file(name) {
  const root = await navigator.storage.getDirectory();
  return await (await root.getFileHandle(name, { create: true })).createSyncAccessHandle();
}

export async function keepFile(name, bytes) {
  const handle = await file(name);
  handle.truncate(0);
  handle.write(bytes, { at: 0 });
  handle.flush();
  handle.close();
}

export async function keptFile(name) {
  const handle = await file(name);
  const bytes = new Uint8Array(handle.getSize());
  handle.read(bytes, { at: 0 });
  handle.close();
  return bytes;
}

/** One transaction on the object store of IndexedDB; the result of the request that `ask` returns. */
export async function inDatabase(mode, ask) {
  const opened = await new Promise((done, failed) => {
    const request = indexedDB.open("race", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("state");
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
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
export const put = (key, value) => inDatabase("readwrite", (store) => store.put(value, key));
export const get = (key) => inDatabase("readonly", (store) => store.get(key));

/** What `save` of the classifier streams, whole. */
export async function saved(applet) {
  const parts = [];
  const last = await applet.call("save", "", { onChunk: (part) => void parts.push(part.slice()) });
  return new Uint8Array(await new Blob([...parts, last]).arrayBuffer());
}

/** What a page without a heap would keep. */
function counts(text) {
  const [categories, words] = text.split("\n\n");
  const parse = (lines) => lines.split("\n").filter((line) => line !== "").map((line) => {
    const [name, ...numbers] = line.split("\t");
    return { name, numbers: numbers.map(Number) };
  });
  return { categories: parse(categories), words: parse(words) };
}

const open = (module, name, words, rest = {}) => Applet.open(module(), {
  heap: name, wasi: shim("mail", []),
  limit: Math.max(4 * MIB, Math.ceil(words * BYTES_PER_WORD * 2 / MIB) * MIB), ...rest });

/** Words of a made-up mail, all of them new. */
export function mailOf(from, count, next) {
  return Array.from({ length: count }, (_, i) =>
    `w${(from + i).toString(36)}x${Math.floor(next() * 36 ** 4).toString(36)}`).join(" ");
}

/**
 * Has the classifier learn so many words in the heap `name`, and keeps the same state as JSON in a
 * file and in IndexedDB, and there as a map, too. `module` gives the applet's module.
 */
export async function keepState(module, name, words) {
  const applet = await open(module, name, words, { durability: "relaxed" });
  const next = random(2);
  for (let from = 0; from < words; from += 4000) {
    const mail = mailOf(from, Math.min(4000, words - from), next);
    await applet.call("learn", `${from % 3 ? "work" : "home"}\n${mail}`);
  }
  const heapBytes = applet.heap().length;
  const state = counts(decoder.decode(await saved(applet)));
  await applet.close();
  const json = JSON.stringify(state);
  await keepFile(`${name}-json`, new TextEncoder().encode(json));
  await put(`${name}-json`, json);
  await put(`${name}-map`, new Map(state.words.map(({ name: word, numbers }) => [word, numbers])));
  return { heapBytes, jsonBytes: json.length };
}

const byWord = (json) =>
  new Map(JSON.parse(json).words.map(({ name: word, numbers }) => [word, numbers]));

/** Each returns the milliseconds until the state can be used, from nothing. */
export const ways = {
  async heap(module, name, words) {
    const started = performance.now();
    const applet = await open(module, name, words);
    const answer = decoder.decode(await applet.call("count", "", { commit: false }));
    const ms = performance.now() - started;
    if (!answer.includes("work\t")) throw new Error(`the state is ${answer}`);
    await applet.close();
    return ms;
  },
  async opfsFile(_module, name) {
    const started = performance.now();
    const state = byWord(decoder.decode(await keptFile(`${name}-json`)));
    const ms = performance.now() - started;
    if (state.size === 0) throw new Error("the state is empty");
    return ms;
  },
  async indexedDb(_module, name) {
    const started = performance.now();
    const state = byWord(await get(`${name}-json`));
    const ms = performance.now() - started;
    if (state.size === 0) throw new Error("the state is empty");
    return ms;
  },
  async indexedDbMap(_module, name) {
    const started = performance.now();
    const state = await get(`${name}-map`);
    const ms = performance.now() - started;
    if (state.size === 0) throw new Error("the state is empty");
    return ms;
  },
};
