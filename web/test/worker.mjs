// Runs one step of a test in a dedicated worker: what only a worker may do.
import { PAGE_SIZE, PageStore } from "/dist/index.js";

const PAGES = 64;
const size = PAGES * PAGE_SIZE;
let store;

const steps = {
  async open() {
    store = await PageStore.open("heap", { size });
  },
  /** The values of all pages, which one commit made the same. */
  values: () => [...new Set(Array.from({ length: PAGES }, (_, i) => store.memory[i * PAGE_SIZE]))],
  commit({ value }) {
    store.memory.fill(value);
    store.commit(Array.from({ length: PAGES }, (_, i) => i));
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
