// The programs of the demo, in a dedicated worker: the page sends a message for each thing that it
// wants, and gets an answer, and reports of commits besides.
import { Applet, PageStore, run, SharedApplet } from "../dist/index.js";
import { File, PreopenDirectory } from "../node_modules/@bjorn3/browser_wasi_shim/dist/index.js";
import { keepState, mailOf, random, shim, ways } from "./race.mjs";

const MIB = 2 ** 20;
const SPELL_LIMIT = 128 * MIB, MAIL_LIMIT = 64 * MIB;
const LISTS = ["index.noun", "index.verb", "index.adj", "index.adv", "noun.exc", "verb.exc",
  "adj.exc", "adv.exc", "american-english-huge"];
const PAGE = 4096;
/** How long a tab waits for another one that checks a text. */
const WAIT_MS = 30_000;
const decoder = new TextDecoder();

const modules = {};
const compiled = (name) => modules[name] ??=
  WebAssembly.compileStreaming(fetch(new URL(`applets/${name}.wasm`, import.meta.url)));

/** The classifier as all tabs have it, and itself where it runs in this one. */
let shared, own;
async function classifier() {
  shared ??= SharedApplet.open("mail", openMail).catch((error) => {
    shared = undefined;
    throw error;
  });
  return await shared;
}

async function openMail() {
  const applet = await Applet.open(await compiled("mail"), {
    heap: "mail", limit: MAIL_LIMIT, wait: true, wasi: shim("mail", []),
    onCommit: ({ pages, findMs, storeMs }) => postMessage({ commit: { pages, findMs, storeMs } }) });
  own = applet;
  applet.ended.then(() => {
    if (own === applet) own = undefined;
  });
  postMessage({ isOwner: true });
  return applet;
}

/** Another tab may check a text meanwhile. */
async function hasTables(wait) {
  const store = await PageStore.open("spell", { size: SPELL_LIMIT, wait });
  const { length } = store;
  store.close();
  return length > 0;
}

const steps = {
  async start() {
    const started = performance.now();
    const applet = await classifier();
    const counts = decoder.decode(await applet.call("count", "", { commit: false }));
    return { ms: performance.now() - started, counts, isOwner: applet.isOwner };
  },
  async check({ text }) {
    const module = await compiled("spellcheck");
    const wait = AbortSignal.timeout(WAIT_MS);
    const started = performance.now();
    const isCold = !await hasTables(wait);
    const files = new Map();
    if (isCold) {
      for (const list of LISTS) {
        const answer = await fetch(new URL(`dict/${list}`, import.meta.url));
        files.set(list, new File(await answer.arrayBuffer()));
      }
    }
    const folders = [new PreopenDirectory("/dict", files),
      new PreopenDirectory("/text", new Map([["text", new File(new TextEncoder().encode(text))]]))];
    const [lines, notes] = [[], []];
    const args = [...(isCold ? ["--dict", "/dict"] : []), "--format", "json", "/text/text"];
    const { exitCode } = await run(module, {
      heap: "spell", limit: SPELL_LIMIT, wait, wasi: shim("spellcheck", lines, args, folders, notes) });
    if (exitCode > 1) throw new Error(notes.join("\n"));
    return { ms: performance.now() - started, isCold, report: lines.join("\n") };
  },
  async learn({ category, text }) {
    const applet = await classifier();
    const started = performance.now();
    await applet.call("learn", `${category}\n${text}`);
    const ms = performance.now() - started;
    return { ms, counts: decoder.decode(await applet.call("count")) };
  },
  async classify({ text }) {
    const applet = await classifier();
    const started = performance.now();
    const verdict = decoder.decode(await applet.call("classify", text, { commit: false }));
    return { ms: performance.now() - started, verdict };
  },
  async feed({ count }) {
    const applet = await classifier();
    const next = random(Date.now());
    const started = performance.now();
    for (let round = 0; round < count; round++) {
      const from = Math.floor(next() * 2 ** 30);
      await applet.call("learn", `${round % 2 ? "made-up" : "spam"}\n${mailOf(from, 60, next)}`);
    }
    const ms = performance.now() - started;
    return { ms, counts: decoder.decode(await applet.call("count")) };
  },
  /** For each page of the heap whether it has a byte that is not zero; nothing where another tab has it. */
  async pages() {
    await classifier();
    if (own === undefined) return {};
    const heap = own.heap();
    const words = new BigUint64Array(heap.buffer, heap.byteOffset, heap.length / 8);
    const used = new Uint8Array(heap.length / PAGE);
    for (let page = 0; page < used.length; page++) {
      const first = page * PAGE / 8;
      for (let word = first; word < first + PAGE / 8; word++) {
        if (words[word] !== 0n) {
          used[page] = 1;
          break;
        }
      }
    }
    return { used };
  },
  async race({ words, way }) {
    const name = `race-${words}`;
    const module = () => compiled("mail");
    if (way === "keep") return await keepState(module, name, words);
    return { ms: await ways[way](module, name, words) };
  },
};

onmessage = async ({ data: { id, step, ...rest } }) => {
  try {
    postMessage({ id, ok: await steps[step](rest) });
  } catch (error) {
    // The wait for another tab ended; the browser's words do not say so.
    const words = error.name === "TimeoutError" ? "Another tab still checks a text; try again when that is done."
      : `${error.name}: ${error.message}`;
    postMessage({ id, error: words });
  }
};
