/**
 * Who may have a heap open: one writer, or any number of readers. A Web Lock decides, which is
 * queued for in order and released when its tab dies; the handles of the files, which exclude one
 * another by themselves, stand behind it.
 */
import { LockedError, UnsupportedError } from "./errors.js";

const LOCKED = "the heap is open elsewhere; close the other tab or handle first";
/** A tab that has just died may keep its handles for a moment. */
const HANDLE_TRIES = 50;
const HANDLE_PAUSE_MS = 20;

export type Access = "readwrite" | "read-only";
/** A parameter that TypeScript's library does not know yet. */
type Openable = {
  createSyncAccessHandle(options?: { mode: Access }): Promise<FileSystemSyncAccessHandle>;
};

/**
 * When this worker gave a lock up: the browser learns it a moment later, and who opens the heap again
 * at once just waits for that.
 */
const released = new Map<string, number>();
const RELEASE_MS_MAX = 500;
const RELEASE_PAUSE_MS = 2;

/** A lock that is held. */
export class HeapLock {
  readonly #release: () => void;

  private constructor(release: () => void) {
    this.#release = release;
  }

  /** Takes it, or throws a `LockedError`; with `wait` when it is free, or the signal is aborted. */
  static async take(
    name: string, mode: LockMode, wait: AbortSignal | boolean = false,
  ): Promise<HeapLock> {
    if (navigator.locks === undefined) {
      throw new UnsupportedError("heaps need Web Locks, which a page has over https or from this machine");
    }
    const signal = wait instanceof AbortSignal ? wait : undefined;
    const options: LockOptions = wait ? { mode, ...(signal && { signal }) } : { mode, ifAvailable: true };
    for (;;) {
      const lock = await new Promise<HeapLock | null>((taken, failed) => {
        navigator.locks.request(`holdfast:${name}`, options, (lock) => {
          if (lock === null) return void taken(null);
          return new Promise<void>((release) => taken(new HeapLock(() => {
            release();
            released.set(name, performance.now());
          })));
        }).catch(failed);
      });
      if (lock !== null) return lock;
      const since = performance.now() - (released.get(name) ?? -Infinity);
      if (since > RELEASE_MS_MAX) throw new LockedError(LOCKED);
      await new Promise((done) => setTimeout(done, RELEASE_PAUSE_MS));
    }
  }

  release(): void {
    this.#release();
  }
}

/** Opens a file of the heap, and makes it if there is none. */
export async function openFile(
  folder: FileSystemDirectoryHandle, name: string, mode: Access,
): Promise<FileSystemSyncAccessHandle> {
  return await openHandle(await folder.getFileHandle(name, { create: true }), mode);
}

/** Opens a file that was found. */
export async function openHandle(
  file: FileSystemFileHandle, mode: Access,
): Promise<FileSystemSyncAccessHandle> {
  if (!("createSyncAccessHandle" in file)) {
    throw new UnsupportedError("heaps need synchronous file handles, which a dedicated worker has");
  }
  return await whenReleased(() => (file as Openable).createSyncAccessHandle({ mode }));
}

/** Tries again what the handles of a tab that has just died prevent; a `LockedError` where they stay. */
export async function whenReleased<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if ((error as DOMException).name !== "NoModificationAllowedError") throw error;
      if (tries === HANDLE_TRIES) throw new LockedError(LOCKED);
      await new Promise((done) => setTimeout(done, HANDLE_PAUSE_MS));
    }
  }
}
