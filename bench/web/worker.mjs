// The steps of what is measured in a page, in a dedicated worker. Times are in milliseconds, from the
// first line of a step: the worker runs then, as it does behind a reload.
import { Applet, NativeApplet, PAGE_SIZE, PageStore, run } from "/dist/index.js";
import { Heaps } from "/dist/heaps.js";
import { file, get, keepFile, keepState, keptFile, put, random, saved, shim, ways,
} from "/demo/race.mjs";
import { programSteps } from "/bench/programs.mjs";
import { measureViews } from "/bench/views.mjs";
import { File, PreopenDirectory, SyncOPFSFile,
} from "/node_modules/@bjorn3/browser_wasi_shim/dist/index.js";

const MIB = 2 ** 20;
const SCRATCH = 64 * MIB;
const encoder = new TextEncoder(), decoder = new TextDecoder();

const compile = (name) => WebAssembly.compileStreaming(fetch(`/applets/${name}.wasm`));
const openApplet = async (name, rest) =>
  await Applet.open(compile(name), { wasi: shim(name, []), ...rest });

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
    const bytes = new Uint8Array(plain.buffer);
    const opened = performance.now();
    handle.read(bytes, { at: 0 });
    const read = performance.now();
    handle.read(bytes, { at: 0 });
    const againMs = performance.now() - read;
    handle.close();
    return { ms, readMs: read - readStarted, againMs, touchMs: read - opened - againMs };
  },

  /** Keeps one state in all ways; and how long it takes until it is back in one of them. */
  makeState: ({ name, words }) => keepState(() => compile("mail"), name, words),
  state: async ({ name, words, way }) => ({ ms: await ways[way](() => compile("mail"), name, words) }),

  /**
   * Changes 100 pages all over a heap and commits: as an applet does, which has them found, and as who
   * names them; and the same bytes to a plain file.
   */
  async commits({ size, count }) {
    const heaps = await Heaps.open({ heap: `commit-${size}`, limit: size }, "strict");
    heaps.place();
    heaps.memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536 });
    if (heaps.imports.attach(0) !== 0 || heaps.imports.grow(BigInt(size)) !== BigInt(size)) {
      throw new Error("the heap did not appear");
    }
    const heap = heaps.all[0].bytes(heaps.memory);
    const next = random(3);
    for (let at = 0; at < size; at += 64) heap[at] = 256 * next();
    heaps.commit();
    heaps.all[0].store.checkpoint();
    const store = await PageStore.open(`commit-${size}-known`, { size });
    store.commit(heap, Array.from({ length: size / PAGE_SIZE }, (_, page) => page));
    store.checkpoint();
    const plainFile = await file("plain");
    const bytes = new Uint8Array(100 * PAGE_SIZE);
    const pages = size / PAGE_SIZE;
    const pageOf = (i) => Math.floor(i * pages / 100) + Math.floor(next() * Math.floor(pages / 100));
    const [ours, found, known, plain] = [[], [], [], []];
    const ourTurn = () => {
      const changes = Array.from({ length: 100 }, (_, i) => pageOf(i));
      changes.forEach((page) => { heap[page * PAGE_SIZE + 17] += 1; });
      let started = performance.now();
      heaps.all[0].changedPages();
      found.push(performance.now() - started);
      started = performance.now();
      const changed = heaps.commit();
      ours.push(performance.now() - started);
      started = performance.now();
      store.commit(heap, changes);
      known.push(performance.now() - started);
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
    store.close();
    plainFile.close();
    return { ours, found, known, plain };
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
  /**
   * Classifies mails with what was learnt, which is had in one of three ways; or with nothing, which
   * is what starting the applet takes.
   */
  async classify({ way, mails }) {
    const fetched = await bodies(mails);
    const started = performance.now();
    const heap = way === "heap" ? "mail" : "none";
    const applet = await openApplet("mail", { heap, limit: SCRATCH });
    const only = { commit: false };
    if (way === "opfs") await applet.call("load", await keptFile("mail-counts"), only);
    if (way === "indexeddb") await applet.call("load", await get("mail-counts"), only);
    const answers = [];
    for (const { mail } of fetched) answers.push(decoder.decode(await applet.call("classify", mail, only)));
    const ms = performance.now() - started;
    await applet.close();
    const isLearnt = answers.every((answer) => answer.includes("ham\t"));
    if (isLearnt === (way === "start")) throw new Error("the applet knows something else than it learnt");
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
  async spell({ way, heap, lists, isBuilt = true }) {
    const text = new Uint8Array(await (await fetch("/text/GPL-3")).arrayBuffer());
    const started = performance.now();
    const module = compile("spellcheck");
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
    if (!isBuilt) for (const list of lists) contents.set(list, new File(await get(list)));
    const folders = [new PreopenDirectory("/dict", contents),
      new PreopenDirectory("/text", new Map([["GPL-3", new File(text)]]))];
    const lines = [];
    const args = [...(way === "heap" ? [] : ["--volatile"]),
      ...(way === "heap" && isBuilt ? [] : ["--dict", "/dict"]), "/text/GPL-3"];
    await run(module, { heap, limit: 512 * MIB, durability: "relaxed",
      wasi: shim("spellcheck", lines, args, folders) });
    const ms = performance.now() - started;
    handles.forEach((handle) => handle.close());
    return { ms, unknown: lines.length };
  },

  views: measureViews,
  ...programSteps,

  /** Small calls one after the other, ten at a time, as the clock has steps of 0.1 ms. */
  async nativeCalls({ address, count }) {
    const applet = await NativeApplet.open("/applets/md5", { server: address });
    const times = [];
    for (let calls = 0; calls < count; calls += 10) {
      const started = performance.now();
      for (let i = 0; i < 10; i++) await applet.call("echo", "sixteen bytes ..");
      times.push((performance.now() - started) / 10);
    }
    await applet.close();
    return { times };
  },
  /** All frames of a video, as fast as they come and are drawn. */
  async nativeVideo({ address }) {
    const applet = await NativeApplet.open("/applets/video", { server: address });
    const video = new Uint8Array(await (await fetch("/videos/city.mpg")).arrayBuffer());
    const { width, height, rate } = JSON.parse(decoder.decode(await applet.call("open", video)));
    const context = new OffscreenCanvas(width, height).getContext("2d");
    const started = performance.now();
    let frames = 0;
    for await (const frame of applet.stream("play")) {
      // The time at which it is due comes first.
      const pixels = new Uint8ClampedArray(frame.buffer, frame.byteOffset + 8, width * height * 4);
      context.putImageData(new ImageData(pixels, width, height), 0, 0);
      frames += 1;
    }
    const perSecond = frames / (performance.now() - started) * 1000;
    await applet.close();
    return { perSecond, rate };
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
