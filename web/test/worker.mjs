// Runs one step of a test in a dedicated worker: what only a worker may do.
import { exportHeap, importHeap, PAGE_SIZE, PageStore, run } from "/dist/index.js";
import { ConsoleStdout, WASI } from "/node_modules/@bjorn3/browser_wasi_shim/dist/index.js";

const PAGES = 64;
const size = PAGES * PAGE_SIZE;
const heap = new Uint8Array(size);
let store;

const steps = {
  async open() {
    store = await PageStore.open("heap", { size });
    store.read(heap);
  },
  /** The values of all pages, which one commit made the same. */
  values: () => [...new Set(Array.from({ length: PAGES }, (_, i) => heap[i * PAGE_SIZE]))],
  commit({ value }) {
    heap.fill(value);
    store.commit(heap, Array.from({ length: PAGES }, (_, i) => i));
  },
  /** Commits, and stands still behind `phase` until the browser is killed. */
  async stall({ value, phase }) {
    store.close();
    const onPhase = (now) => {
      if (now !== phase) return;
      postMessage({ ok: "stalled" });
      for (;;);
    };
    store = await PageStore.open("heap", { size, onPhase });
    steps.commit({ value });
  },
  /**
   * Runs an applet with arguments; what it printed, its exit code, and the pages of its commits.
   * With `phase` it stands still behind that step of its commit until the browser is killed.
   */
  async run({ applet, args, limit, phase }) {
    const lines = [];
    const print = ConsoleStdout.lineBuffered((line) => lines.push(line));
    const onPhase = phase && ((now) => {
      if (now !== phase) return;
      postMessage({ ok: "stalled" });
      for (;;);
    });
    // An earlier commit is finished first: its steps are not those to stand still behind.
    if (phase) (await PageStore.open(applet, { size: limit })).close();
    const module = await WebAssembly.compileStreaming(fetch(`/applets/${applet}.wasm`));
    const wasi = new WASI([applet, ...args], [], [print, print, print]);
    return { lines, ...await run(module, { heap: applet, limit, wasi, onPhase }) };
  },
  async importHeap({ name, base64 }) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    await importHeap(name, new Blob([bytes]));
  },
  async exportHeap({ name, limit }) {
    const bytes = new Uint8Array(await (await exportHeap(name, limit)).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
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
  /** Changes a byte in the body of the journal. */
  async damage() {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle("heap");
    const journal = await (await folder.getFileHandle("journal")).createSyncAccessHandle();
    const byte = new Uint8Array(1);
    journal.read(byte, { at: 2 * PAGE_SIZE });
    byte[0] ^= 1;
    journal.write(byte, { at: 2 * PAGE_SIZE });
    journal.close();
  },
};

onmessage = async ({ data: { step, ...rest } }) => {
  try {
    postMessage({ ok: (await steps[step](rest)) ?? null });
  } catch (error) {
    postMessage({ error: error.name });
  }
};
postMessage({ ok: "ready" });
