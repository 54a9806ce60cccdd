/**
 * Runs an applet in WebAssembly as `holdfast run` and `holdfast call` do: the same module, with its
 * heaps at the same offsets of linear memory, so with the same pointers.
 *
 * Invariants: the applet is not trusted: it reaches its heaps, the functions that it is granted and
 * the WASI that it is given, and every argument of an import is checked. It runs on the thread that
 * called it; one that does not return is ended with its worker.
 *
 * Only for a dedicated worker, as the store is.
 */
import { AppletEndedError, StorageLostError, UnsupportedError } from "./errors.js";
import { Heaps, type HeapOptions } from "./heaps.js";
import { HostFunctions, type HostFunction } from "./host-functions.js";
import { bytesOf, type Input } from "./input.js";
import { type Durability } from "./store.js";
import { CALL_IN_CHUNK, Mailbox, type CallOptions } from "./mailbox.js";

const MODULE = "holdfast";
/** The oldest import: a program that has it may rely on where its first heap is. */
const OLD_IMPORT = "attach";

/** WASI for the applet: an object of class `WASI` of `@bjorn3/browser_wasi_shim`, or one like it. */
export interface Wasi {
  readonly wasiImport: Record<string, unknown>;
  /** Calls `_start` and returns the exit code. */
  start(instance: never): number;
}

/** A module, or one that is being compiled: the heaps are opened meanwhile. */
export type AppletModule = WebAssembly.Module | PromiseLike<WebAssembly.Module>;

/** How an applet is run. */
export interface RunOptions extends HeapOptions {
  readonly wasi: Wasi;
  /** What the applet may call of its host, by name. */
  readonly functions?: Readonly<Record<string, HostFunction>>;
  /** Milliseconds that an asynchronous function of the host may take; 10,000 unless said. */
  readonly functionTimeout?: number;
  /**
   * `strict`, unless said: what a call stored survives a power cut when its promise is fulfilled.
   * `relaxed`: it survives the end of tab and browser, and a power cut only somewhat later.
   */
  readonly durability?: Durability;
  /**
   * When an applet that serves is committed: behind each call, unless said, or `idle`, when nothing
   * was called for a moment, at the latest a second after what it stored. A killed tab loses that.
   */
  readonly commits?: "each-call" | "idle";
}

/** What a run came to. */
export interface Run {
  readonly exitCode: number;
  /** Pages that the commits of the run wrote. */
  readonly committedPages: number;
}

/**
 * What an applet allocates lies above its heaps, beyond 2 GiB, and such an address comes as a negative
 * number, which shims do not expect. No argument of WASI is a negative number of 32 bits.
 */
function withHighAddresses(wasi: Record<string, unknown>): WebAssembly.ModuleImports {
  const unsigned = (value: unknown) => (typeof value === "number" ? value >>> 0 : value);
  return Object.fromEntries(Object.entries(wasi).map(([name, call]) => [name,
    typeof call === "function" ? (...rest: unknown[]) => call(...rest.map(unsigned)) : call,
  ])) as WebAssembly.ModuleImports;
}

/** Stack switching (JSPI), which TypeScript's library does not know yet. */
interface StackSwitching {
  readonly Suspending: new (call: (...rest: never[]) => unknown) => WebAssembly.ImportValue;
  promising(call: WebAssembly.ExportValue): () => Promise<unknown>;
}

function stackSwitching(): StackSwitching | undefined {
  return "Suspending" in WebAssembly ? (WebAssembly as unknown as StackSwitching) : undefined;
}

/** A module with its imports, that has not begun. */
class Instance {
  readonly heaps: Heaps;
  readonly mailbox: Mailbox;
  readonly functions: HostFunctions;
  /** Called behind the commit of a call. */
  onCommit: () => void = () => {};
  readonly #wasi: Wasi;
  #exports: WebAssembly.Exports = {};

  private constructor(heaps: Heaps, options: RunOptions) {
    this.heaps = heaps;
    this.mailbox = new Mailbox(() => heaps.memory!, () => {
      heaps.commit();
      this.onCommit();
      return heaps.settled();
    });
    this.functions = new HostFunctions(
      options.functions ?? {}, () => heaps.memory!, options.functionTimeout);
    this.#wasi = options.wasi;
  }

  static async create(given: AppletModule, options: RunOptions): Promise<Instance> {
    // The heaps are opened while the module is still fetched and compiled.
    const opening = Heaps.open(options, options.durability ?? "strict");
    opening.catch(() => {});
    let module: WebAssembly.Module;
    try {
      module = await given;
    } catch (error) {
      const closed = opening.then((heaps) => heaps.close()).catch(() => {});
      // Who waits for a heap would wait for it in vain.
      if (!options.wait) await closed;
      throw error;
    }
    const heaps = await opening;
    try {
      const needed = WebAssembly.Module.imports(module);
      heaps.place(needed.some(({ module: from, name }) => from === MODULE && name === OLD_IMPORT));
      const instance = new Instance(heaps, options);
      await instance.#link(module, needed);
      return instance;
    } catch (error) {
      heaps.close();
      throw error;
    }
  }

  async #link(
    module: WebAssembly.Module, needed: readonly WebAssembly.ModuleImportDescriptor[],
  ): Promise<void> {
    const { Suspending } = stackSwitching() ?? {};
    const offered: WebAssembly.ModuleImports = {
      ...this.heaps.imports, ...this.mailbox.imports, ...this.functions.imports, arena: () => 0n };
    if (Suspending !== undefined) {
      const names = ["receive", "send", "host_call"];
      this.functions.mayWait = true;
      this.heaps.mayWait = this.heaps.weaker.length > 0;
      if (this.heaps.mayWait) names.push("heap_commit", "commit");
      for (const name of names) {
        offered[name] = new Suspending(offered[name] as (...rest: never[]) => unknown);
      }
    }
    const imports: WebAssembly.Imports = {
      [MODULE]: offered,
      wasi_snapshot_preview1: withHighAddresses(this.#wasi.wasiImport),
    };
    for (const { module: from, name } of needed) {
      // Only what is offered, not what every object of JavaScript has besides.
      if (!Object.hasOwn(imports, from) || !Object.hasOwn(imports[from]!, name)) {
        throw new UnsupportedError(`the applet needs ${from}.${name}, which a page does not offer`);
      }
    }
    const { exports } = await WebAssembly.instantiate(module, imports);
    if (!(exports.memory instanceof WebAssembly.Memory)) {
      throw new UnsupportedError("the applet exports no memory");
    }
    if (typeof exports._start !== "function") {
      throw new UnsupportedError("the applet exports no _start; build it for wasm32-wasip1");
    }
    this.heaps.memory = exports.memory;
    this.#exports = exports;
  }

  /** Runs to the end; the exit code. */
  async start(): Promise<number> {
    const switching = stackSwitching();
    if (switching === undefined) return this.#wasi.start({ exports: this.#exports } as never);
    let ended: Promise<unknown> | undefined;
    const begin = () => { ended = switching.promising(this.#exports._start!)(); };
    // The shim learns the memory, and begins; what it waits for is our own.
    const code = this.#wasi.start({ exports: { ...this.#exports, _start: begin } } as never);
    try {
      await ended;
      return code;
    } catch (error) {
      // As the shim tells an exit. What the browser says of a file has a code, too.
      const { code: exitCode } = error as { code?: unknown };
      const isOther = error instanceof WebAssembly.RuntimeError || error instanceof DOMException;
      if (typeof exitCode !== "number" || isOther) throw error;
      return exitCode;
    }
  }
}

/** Commits, and looks meanwhile, and behind what takes longer, whether the storage is still there. */
async function commitAtEnd(heaps: Heaps): Promise<void> {
  const checking = heaps.check();
  checking.catch(() => {});
  const started = performance.now();
  heaps.commit();
  const settling = heaps.settled();
  await settling;
  await checking;
  if (settling !== undefined || performance.now() - started > UNCHECKED_MS) await heaps.check();
}

/** How long a commit may take without another look. */
const UNCHECKED_MS = 20;

/**
 * Runs a module until it returns, and commits its heaps, also where it trapped: a heap is what the
 * applet left, and the applet rolls an open transaction back when it opens the heap again. One that
 * serves calls is told to return.
 *
 * Throws what `PageStore.open` throws, `UnsupportedError` for a module that a page cannot run, and
 * the trap of one that trapped.
 */
export async function run(module: AppletModule, options: RunOptions): Promise<Run> {
  const instance = await Instance.create(module, options);
  try {
    instance.mailbox.end();
    let exitCode: number;
    try {
      exitCode = await instance.start();
    } finally {
      await commitAtEnd(instance.heaps);
    }
    return { exitCode, committedPages: instance.heaps.committedPages };
  } finally {
    instance.heaps.close();
  }
}

/** A running applet that serves calls. */
export class Applet {
  /** Fulfilled when the applet has returned or trapped, of its own or behind `close`. */
  readonly ended: Promise<void>;
  readonly #instance: Instance;
  readonly #ended: Promise<number>;
  #checkpoint: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;
  #closing: Promise<number | undefined> | undefined;
  #checkedAt = performance.now();
  #lost: StorageLostError | undefined;
  readonly #isIdle: boolean;
  /** Since when calls were not committed. */
  #uncommittedSince: number | undefined;
  #callsUnderWay = 0;

  private constructor(instance: Instance, isIdle: boolean) {
    this.#instance = instance;
    this.#isIdle = isIdle;
    instance.onCommit = () => { this.#uncommittedSince = undefined; };
    this.#ended = instance.start();
    this.ended = this.#ended.then(() => {}, () => {});
  }

  /**
   * Starts an applet, and waits until it serves. Throws what `run` throws, and an
   * `UnsupportedError` where the browser has no stack switching (JSPI; Chrome has it from 137 on).
   */
  static async open(module: AppletModule, options: RunOptions): Promise<Applet> {
    if (stackSwitching() === undefined) {
      throw new UnsupportedError("calls need a browser with stack switching (JSPI); run() needs none");
    }
    const instance = await Instance.create(module, options);
    const applet = new Applet(instance, options.commits === "idle");
    const over = (error: AppletEndedError) => {
      applet.#commitLeft();
      instance.mailbox.fail(error);
    };
    applet.#ended.then(
      (code) => over(new AppletEndedError(`the applet ended with code ${code}`)),
      (cause) => over(new AppletEndedError("the applet trapped", { cause })),
    );
    try {
      await instance.mailbox.ready;
      return applet;
    } catch (error) {
      // Why it does not serve says more than what its end failed with.
      await applet.close().catch(() => {});
      throw error;
    }
  }

  /** The names of its functions. */
  get exports(): readonly string[] {
    return this.#instance.mailbox.exports;
  }

  /** Pages that its commits wrote so far. */
  get committedPages(): number {
    return this.#instance.heaps.committedPages;
  }

  /**
   * Calls a function, after the calls before it; its result, when what it stored is committed, unless
   * the options say otherwise. The input is read when the applet takes it: leave it as it is until the
   * call has ended.
   * Rejects with a `CallError` where the function failed, an `AppletEndedError` where the applet did,
   * a `QuotaError` where there is no room for the commit, which the next one tries again, and a
   * `StorageFailedError` where the disk failed: close the applet and open it again then.
   */
  async call(
    name: string, input: Input = "", options: CallOptions = {},
  ): Promise<Uint8Array> {
    if (this.#instance.functions.isRunning) {
      throw new Error("a function of the host called the applet that it runs for; return first");
    }
    if (this.#instance.mailbox.isGiving) throw new Error(CALL_IN_CHUNK);
    if (this.#lost !== undefined) throw this.#lost;
    const bytes = bytesOf(input);
    const { commit = this.#commitsNow() } = options;
    clearTimeout(this.#checkpoint);
    this.#callsUnderWay += 1;
    try {
      return await this.#instance.mailbox.call(name, bytes, { ...options, commit });
    } finally {
      this.#callsUnderWay -= 1;
      if (this.#isIdle && !commit) this.#uncommittedSince ??= performance.now();
      if (performance.now() - this.#checkedAt > CHECK_AFTER_MS) void this.#check();
      this.#scheduleCheckpoint();
    }
  }

  /** The bytes of a heap, to be read between calls: a view that ends with the next call. */
  heap(name?: string): Uint8Array {
    const { heaps } = this.#instance;
    const heap = heaps.find(name);
    if (heap === undefined) throw new RangeError(`the applet was granted no heap ${name}`);
    return heap.bytes(heaps.memory!);
  }

  /** Where a heap begins in the applet's memory, which is what its pointers count from 0. */
  heapBase(name?: string): number {
    const heap = this.#instance.heaps.find(name);
    if (heap === undefined) throw new RangeError(`the applet was granted no heap ${name}`);
    return heap.base;
  }

  /**
   * The last commit of a heap as a stream, as `exportHeap` has it of a heap that nobody has open. One
   * that was never imported gets an address at its first export, and the limit that it was opened with.
   * Rejects with a `RangeError` for a heap that has nothing stored, a `CorruptError` for a damaged one, and a
   * `ReadOnlyError` for one that is open for reading and has no address yet.
   */
  async exportHeap(name?: string): Promise<Blob> {
    if (this.#isClosed) throw new AppletEndedError("the applet was closed");
    const heap = this.#instance.heaps.find(name);
    if (heap === undefined) throw new RangeError(`the applet was granted no heap ${name}`);
    return await heap.export();
  }

  /** How many pages of its heaps differ from what is stored. */
  get changedPages(): number {
    const { all } = this.#instance.heaps;
    return all.reduce((sum, heap) => sum + heap.changedPages().length, 0);
  }

  /** What its heaps promise less than elsewhere, a sentence each: see `fallback`. */
  get weaker(): readonly string[] {
    return this.#instance.heaps.weaker;
  }

  /** Commits what was stored outside of calls; returns how many pages, when they are stored. */
  async commit(durability?: Durability): Promise<number> {
    const pages = this.#instance.heaps.commit(durability);
    await this.#instance.heaps.settled();
    await this.#instance.heaps.check();
    return pages;
  }

  /**
   * Tells the applet to return, commits, and releases its heaps, behind the exports under way; the exit
   * code, if it returned. Rejects with what a commit throws: what was not committed is lost then. Closing
   * again only waits until the heaps are released.
   */
  async close(): Promise<number | undefined> {
    if (this.#closing !== undefined) {
      // The first caller of `close` gets the error.
      await this.#closing.catch(() => {});
      return undefined;
    }
    this.#closing = this.#close();
    return await this.#closing;
  }

  async #close(): Promise<number | undefined> {
    this.#isClosed = true;
    clearTimeout(this.#checkpoint);
    this.#instance.mailbox.end();
    try {
      return await this.#ended;
    } catch {
      // Its calls were told.
      return undefined;
    } finally {
      try {
        await this.#check();
        if (this.#lost !== undefined) throw this.#lost;
        this.#instance.heaps.commit();
        await this.#instance.heaps.settled();
      } finally {
        // They may give a heap its address, which then may be another tab's.
        await Promise.all(this.#instance.heaps.all.map((heap) => heap.exported()));
        this.#instance.heaps.close();
      }
    }
  }

  /** Commits what an applet left that ended of its own. `close` commits again, and has the error. */
  #commitLeft(): void {
    if (this.#isClosed) return;
    try {
      const { heaps } = this.#instance;
      heaps.commit();
      // IndexedDB stores it only when it is asked whether it has.
      heaps.settled()?.catch(() => {});
    } catch {
      // The disk may be full, and have room when the applet is closed.
    }
  }

  /** Looks whether the storage is still there; calls fail from now on where it is not. */
  async #check(): Promise<void> {
    this.#checkedAt = performance.now();
    try {
      await this.#instance.heaps.check();
    } catch (error) {
      // What could not be looked at may be there: a commit tells by itself.
      if (error instanceof StorageLostError) this.#lost = error;
    }
  }

  /** Whether a call that begins now is to be committed. */
  #commitsNow(): boolean {
    const since = this.#uncommittedSince ?? Infinity;
    return !this.#isIdle || performance.now() - since > COMMIT_AFTER_MS;
  }

  /** Commits what waits, and brings commits home, while nothing is called. */
  #scheduleCheckpoint(): void {
    clearTimeout(this.#checkpoint);
    // In a call the heaps may be half of what they are to be.
    const isQuiet = () => !this.#isClosed && this.#callsUnderWay === 0;
    if (!isQuiet()) return;
    this.#checkpoint = setTimeout(async () => {
      await this.#check();
      if (!isQuiet() || this.#lost !== undefined) return;
      try {
        if (this.#uncommittedSince !== undefined) {
          this.#instance.heaps.commit();
          this.#uncommittedSince = undefined;
          await this.#instance.heaps.settled();
        }
      } catch {
        // The next call is committed, and has the error.
        this.#uncommittedSince = -Infinity;
      }
      if (!isQuiet()) return;
      for (const heap of this.#instance.heaps.all) {
        try {
          heap.checkpoint();
        } catch {
          // The commits stand in the journal; what failed fails again with the next commit.
        }
      }
    }, this.#uncommittedSince === undefined ? CHECKPOINT_AFTER_MS : IDLE_MS);
  }
}

const CHECKPOINT_AFTER_MS = 200;
/** How long nothing is called before calls that were not committed are. */
const IDLE_MS = 50;
/** How long what a call stored waits at most for its commit, while other calls are made. */
const COMMIT_AFTER_MS = 800;
/** How long calls go on at most before the storage is looked at. */
const CHECK_AFTER_MS = 1000;
