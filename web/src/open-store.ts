/** Opens what keeps a heap: files, or a database where there are none and that was asked for. */
import { DatabaseStore } from "./database-store.js";
import { UnsupportedError } from "./errors.js";
import { PageStore } from "./page-store.js";
import type { HeapStore, OpenOptions } from "./store.js";

/** Throws what `PageStore.open` throws. */
export async function openStore(
  name: string, options: OpenOptions, fallback: "indexeddb" | undefined,
): Promise<HeapStore> {
  try {
    return await PageStore.open(name, options);
  } catch (error) {
    if (fallback !== "indexeddb" || !(error instanceof UnsupportedError)) throw error;
    return await DatabaseStore.open(name, options);
  }
}
