/** Opens what keeps a heap: files, or a database where there are none and that was asked for. */
import { DatabaseStore } from "./database-store.js";
import { FilesRefusedError } from "./errors.js";
import { NotFoundError } from "./heap-errors.js";
import { PageStore } from "./page-store.js";
import { PAGE_SIZE, type HeapStore, type OpenOptions } from "./store.js";

/** Where a heap is looked for besides files. */
export interface FallbackOptions {
  /** As for applets: in IndexedDB, where the browser gives the page no files. */
  readonly fallback?: "indexeddb";
}

/**
 * Throws what `PageStore.open` throws. A heap that was kept in a database while the browser refused
 * files moves into files when these are there again.
 */
export async function openStore(
  name: string, options: OpenOptions, fallback: "indexeddb" | undefined,
): Promise<HeapStore> {
  try {
    const store = await PageStore.open(name, options);
    if (fallback === "indexeddb") await closingOnError(store, () => adopt(store, name, options));
    return store;
  } catch (error) {
    // Where files are there, but not for this thread, a database would be a second heap of that name.
    if (fallback === "indexeddb" && error instanceof FilesRefusedError) {
      return await DatabaseStore.open(name, options);
    }
    const isInDatabase = fallback === "indexeddb" && error instanceof NotFoundError
      && await DatabaseStore.contentsOf(name) !== undefined;
    if (!isInDatabase) throw error;
    // It moves into files, which takes a writer.
    const { size, wait } = options;
    const moved = await openStore(name, { size, wait }, fallback);
    if (options.access !== "read-only") return moved;
    moved.close();
    return await PageStore.open(name, options);
  }
}

/** Takes over what a database has of this heap, whose lock we have. */
async function adopt(store: PageStore, name: string, { access }: OpenOptions): Promise<void> {
  let kept: Awaited<ReturnType<typeof DatabaseStore.contentsOf>>;
  try {
    kept = await DatabaseStore.contentsOf(name);
  } catch (error) {
    // In place of an empty heap there may be one to be moved.
    if (store.length === 0) throw error;
    store.weaker = "kept in files, and whether there is another one of that name in IndexedDB could not be \
looked up";
    return;
  }
  if (kept === undefined) return;
  if (store.length > 0 || access === "read-only") {
    store.weaker = "kept in files, and another one of that name in IndexedDB, from a visit for which the \
browser refused files: export one of them and remove it";
    return;
  }
  const heap = new Uint8Array(kept.length);
  kept.pages.forEach((bytes, page) => heap.set(bytes, page * PAGE_SIZE));
  if (kept.origin !== undefined) await store.keepOrigin(kept.origin);
  store.commit(heap, [...kept.pages.keys()]);
  await DatabaseStore.remove(name);
}

async function closingOnError(store: HeapStore, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    store.close();
    throw error;
  }
}
