/** What the browser says of the storage of this origin. */
import { UnsupportedError } from "./errors.js";

/** The storage of the origin. */
export interface StorageState {
  /** Whether the browser keeps it also when the disk gets full. */
  readonly isPersistent: boolean;
  /** Bytes that the origin uses, and may use, as the browser estimates them. */
  readonly usedBytes: number;
  readonly quotaBytes: number;
}

/** The library of TypeScript is that of workers. */
type Askable = StorageManager & { persist?: () => Promise<boolean> };

/** In a page or a worker. */
export async function storageState(): Promise<StorageState> {
  const [isPersistent, { usage = 0, quota = 0 }] =
    await Promise.all([navigator.storage.persisted(), navigator.storage.estimate()]);
  return { isPersistent, usedBytes: usage, quotaBytes: quota };
}

/**
 * Asks the browser to keep the storage of this origin also when the disk gets full, and returns
 * whether it does: some ask the user, others decide by how the site is used. Only a page may ask:
 * `UnsupportedError` in a worker.
 */
export async function keepStorage(): Promise<boolean> {
  const storage = navigator.storage as Askable;
  if (storage.persist === undefined) {
    throw new UnsupportedError("only a page may ask for lasting storage; call this outside of workers");
  }
  return await storage.persisted() || await storage.persist();
}
