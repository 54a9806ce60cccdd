/** The heaps of this origin: which there are, and their removal. */
import { DatabaseStore } from "./database-store.js";
import { FilesRefusedError } from "./errors.js";
import { NotFoundError } from "./heap-errors.js";
import { HeapLock, whenReleased } from "./lock.js";
import type { FallbackOptions } from "./open-store.js";
import { originFiles, PageStore, removeFiles } from "./page-store.js";
import { checkedName } from "./store.js";

/** The names of the heaps of this origin, sorted; with `fallback` also of those in IndexedDB. */
export async function heapNames({ fallback }: FallbackOptions = {}): Promise<string[]> {
  const names = fallback === "indexeddb" ? await DatabaseStore.names() : [];
  for (const name of await orNothing(fallback, PageStore.names) ?? []) names.push(name);
  return [...new Set(names)].sort();
}

/**
 * Removes a heap with its snapshots; with `fallback` also one in IndexedDB. What a page keeps of its own
 * in the heap's folder stays; a tab that dies between the last two files of such a heap leaves its file
 * `journal` there, in what is a folder of the page's own then. Throws a `LockedError` while it is open, and
 * a `NotFoundError` where there is none.
 */
export async function removeHeap(name: string, { fallback }: FallbackOptions = {}): Promise<void> {
  checkedName(name);
  const lock = await HeapLock.take(name, "exclusive");
  try {
    let isGone = false;
    // Before anything is removed: it may fail.
    const kept = fallback === "indexeddb" ? await DatabaseStore.names() : [];
    const files = await orNothing(fallback, originFiles);
    if (files !== undefined && (await PageStore.names()).includes(name)) {
      await whenReleased(() => removeFiles(files, name));
      isGone = true;
    }
    if (kept.includes(name)) {
      await DatabaseStore.remove(name);
      isGone = true;
    }
    if (!isGone) throw new NotFoundError(`there is no heap ${name}`);
  } finally {
    lock.release();
  }
}

/** Where files are refused, and another place is asked for, there are none in files. */
async function orNothing<Result>(
  fallback: "indexeddb" | undefined, ask: () => Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (fallback === "indexeddb" && error instanceof FilesRefusedError) return undefined;
    throw error;
  }
}
