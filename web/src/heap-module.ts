/**
 * The module of WebAssembly that knows heaps (`web/heap-module`), as TypeScript calls it: bytes in
 * and out, and its failures as errors.
 *
 * Invariants: a module that trapped is called no more, since it may have left the heap in the
 * middle of a change. No view of linear memory is kept across a call that may grow it.
 */
import {
  CorruptError, ExistsError, LayoutMismatchError, UnsupportedError,
} from "./errors.js";
import {
  HeapFullError, LimitError, NotFoundError, ReadOnlyError, SelectorError, StaleReferenceError,
  TransactionError,
} from "./heap-errors.js";
import type { Heaps } from "./heaps.js";

/** What the module exports; `web/heap-module/src/exports.rs` says what each does. */
export interface HeapExports {
  readonly memory: WebAssembly.Memory;
  heap_input(bytes: number): number;
  heap_results(): number;
  heap_attach(): number;
  heap_backed(): number;
  root_find(name: number): number;
  root_create(name: number, bytes: number, layout: bigint): number;
  root_set(name: number, at: number, bytes: number, layout: bigint): number;
  root_remove(name: number): number;
  root_names(): number;
  object_allocate(bytes: number): number;
  object_free(at: number): number;
  object_bytes(at: number): number;
  tx_begin(): number;
  tx_commit(): number;
  tx_abort(): number;
  tx_log(at: number, bytes: number): number;
  map_create(name: number, kinds: number, valueLayout: bigint, seed: bigint): number;
  map_open(name: number, kinds: number, valueLayout: bigint): number;
  map_get(at: number, key: number): number;
  map_set(at: number, key: number, value: number): number;
  map_set_number(at: number, key: number, value: number): number;
  map_set_word(at: number, key: number, value: number): number;
  map_delete(at: number, key: number): number;
  map_clear(at: number): number;
  map_remove(at: number, name: number): number;
  map_header(at: number): number;
  map_scan(at: number, from: number, most: number): number;
  array_create(name: number, elementBytes: number, layout: bigint): number;
  array_open(name: number, elementBytes: number, layout: bigint): number;
  array_check(at: number): number;
  array_reserve(at: number, room: number): number;
  document_open(name: number): number;
  document_parse(name: number, html: number): number;
  document_remove(name: number): number;
  document_names(): number;
  document_select(document: number, node: number, selector: number, way: number): number;
  document_children(document: number, node: number): number;
  document_parent(document: number, node: number): number;
  document_text(document: number, node: number, part: number): number;
  document_attribute(document: number, node: number, attribute: number): number;
  document_attributes(document: number, node: number): number;
}

/** The functions that return a status. */
type Calls = Omit<HeapExports, "memory" | "heap_input" | "heap_results" | "object_bytes">;

/** Numbers of failures: those of `web/heap-module/src/fault.rs`. */
const FULL = 2;
const SELECTOR = 10;
const ERRORS: Readonly<Record<number, new (message: string) => Error>> = {
  1: CorruptError, 2: HeapFullError, 3: LayoutMismatchError, 4: NotFoundError, 5: ExistsError,
  6: RangeError, 7: ReadOnlyError, 8: StaleReferenceError, 9: TransactionError, 11: LimitError,
  12: UnsupportedError,
};
/** Texts up to this length are copied letter by letter, which is faster than a decoder's call. */
const SHORT = 32;
const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const HALF_PAIR = /\p{Surrogate}/u;
/** WASI's code for a function that is not there. */
const NOT_SUPPORTED = 52;
const WASM_MAGIC = 0x6d73_6100; // "\0asm"

let compiled: Promise<WebAssembly.Module> | undefined;

/** The module of this package, fetched and compiled once for each worker. */
export function ownModule(): Promise<WebAssembly.Module> {
  compiled ??= (async () => {
    const response = await fetch(new URL("./heap.wasm", import.meta.url));
    const missing = (found: unknown) =>
      new UnsupportedError(`heap.wasm was not found beside the package's files (${found}); serve it there, or \
pass it as the option module`);
    if (!response.ok) throw missing(response.status);
    const kind = response.headers.get("content-type");
    // Compiled while it arrives, and kept compiled by browsers, where the server says what it is.
    if (kind?.startsWith("application/wasm")) return WebAssembly.compileStreaming(response);
    const bytes = await response.arrayBuffer();
    // Servers of bundlers answer with a page where they have no such file.
    if (!beginsAsModule(bytes)) throw missing(kind);
    return WebAssembly.compile(bytes);
  })();
  // What failed for want of a network is tried again.
  compiled.catch(() => { compiled = undefined; });
  return compiled;
}

function beginsAsModule(bytes: ArrayBuffer): boolean {
  return bytes.byteLength >= 4 && new DataView(bytes).getUint32(0, true) === WASM_MAGIC;
}

export class HeapModule {
  readonly exports: HeapExports;
  /** Why it is called no more: it trapped, or its heap is closed. */
  ended: CorruptError | StaleReferenceError | undefined;
  /** A change failed half-way, so that an open transaction can only be rolled back. */
  isDoomed = false;
  #input = new Uint8Array();
  #inputAt = 0;
  #capacity = 0;
  #results = new Uint32Array();

  private constructor(exports: HeapExports) {
    this.exports = exports;
  }

  /**
   * Loads the module over heaps that were opened, and attaches the first of them. Throws an `UnsupportedError`
   * where the browser gives no memory for them.
   */
  static async attach(heaps: Heaps, compiled: WebAssembly.Module): Promise<HeapModule> {
    const imports: Record<string, Record<string, WebAssembly.ImportValue>> = {};
    let memory: WebAssembly.Memory | undefined;
    for (const { module: from, name } of WebAssembly.Module.imports(compiled)) {
      const offered = from === "holdfast" ? heaps.imports[name] : wasi(name, () => memory!);
      if (offered === undefined) {
        throw new UnsupportedError(`heap.wasm needs ${from}.${name}, which a page does not offer`);
      }
      (imports[from] ??= {})[name] = offered;
    }
    const { exports } = await WebAssembly.instantiate(compiled, imports);
    const own = exports as unknown as HeapExports;
    memory = own.memory;
    heaps.memory = memory;
    const initialize = exports._initialize;
    if (typeof initialize === "function") initialize();
    const module = new HeapModule(own);
    try {
      module.call("heap_attach");
    } catch (cause) {
      if (!heaps.isMemoryRefused) throw cause;
      const mib = heaps.all[0]!.limit / 2 ** 20;
      throw new UnsupportedError(`the browser gives this page no memory of 2 GiB + ${mib} MiB, which a heap of \
that size needs; a smaller \`size\` may help`, { cause });
    }
    return module;
  }

  /** Calls a function; its status, which is no failure. */
  call<K extends keyof Calls>(name: K, ...rest: Parameters<Calls[K]>): number {
    if (this.ended !== undefined) throw this.ended;
    let status: number;
    try {
      status = (this.exports[name] as (...rest: unknown[]) => number)(...rest);
    } catch (error) {
      throw this.trapped(error);
    }
    return status < 0 ? this.fail(status) : status;
  }

  /** Throws what a status says. */
  fail(status: number, selector = ""): never {
    const column = this.result(2);
    const text = this.text(this.result(0), this.result(1));
    if (-status === FULL) this.isDoomed = true;
    if (-status === SELECTOR) throw new SelectorError(text, selector, column);
    const kind = ERRORS[-status] ?? Error;
    throw new kind(text);
  }

  /** What a trap means: only bytes that no version of Holdfast wrote lead to one. */
  trapped(cause: unknown): Error {
    this.ended ??= new CorruptError("the heap is damaged so that it could not be followed; close \
it, and restore it from an export", { cause });
    return this.ended;
  }

  /** One of the words that a call gave. */
  result(index: number): number {
    if (this.#results.length === 0) {
      const { memory, heap_results } = this.exports;
      this.#results = new Uint32Array(memory.buffer, heap_results(), 8);
    }
    return this.#results[index]!;
  }

  /** The words at a place of linear memory: a copy. */
  words(at: number, count: number): Uint32Array {
    return new Uint32Array(this.exports.memory.buffer, at >>> 0, count).slice();
  }

  /** Bytes that stay as they are when linear memory grows: a copy, where they are a view of it. */
  lasting(bytes: Uint8Array): Uint8Array {
    return bytes.buffer === this.exports.memory.buffer ? bytes.slice() : bytes;
  }

  /** Puts bytes into the input, at a place of it; how many. */
  putBytes(bytes: Uint8Array, at = 0): number {
    const { length } = bytes;
    // Only a larger input has memory grow.
    const from = at + length > this.#capacity ? this.lasting(bytes) : bytes;
    this.#reserve(at + length);
    this.#input.set(from, at);
    return length;
  }

  /** Puts text into the input, as UTF-8; how many bytes. Throws a `TypeError` for half a letter. */
  putText(text: string, at = 0): number {
    const { length } = text;
    this.#reserve(at + length * 3);
    const input = this.#input;
    if (length <= SHORT) {
      let index = 0;
      for (; index < length; index++) {
        const code = text.charCodeAt(index);
        if (code > 0x7f) break;
        input[at + index] = code;
      }
      if (index === length) return length;
    }
    const { written } = ENCODER.encodeInto(text, input.subarray(at));
    if (written !== length && HALF_PAIR.test(text)) {
      throw new TypeError("a text has half of a pair of UTF-16; make it well-formed first");
    }
    return written;
  }

  /** The text at a place of linear memory. */
  text(at: number, length: number): string {
    const bytes = new Uint8Array(this.exports.memory.buffer, at >>> 0, length);
    return textOf(bytes, 0, length);
  }

  /** Has room for so many bytes of input; what is in it stays. */
  #reserve(bytes: number): void {
    if (bytes > this.#capacity) {
      const wanted = Math.max(4096, this.#capacity * 2, bytes);
      const at = this.exports.heap_input(wanted) >>> 0;
      if (at === 0) throw new HeapFullError(`there is no memory for an input of ${bytes} bytes`);
      [this.#inputAt, this.#capacity] = [at, wanted];
    } else if (this.#input.length !== 0) {
      return;
    }
    this.#input = new Uint8Array(this.exports.memory.buffer, this.#inputAt, this.#capacity);
  }
}

/** Puts a name into the input; its bytes. */
export function putName(module: HeapModule, name: string): number {
  if (typeof name !== "string") throw new TypeError(`a name is a string, and not a ${typeof name}`);
  if (name.includes("\0")) throw new RangeError("a name has no character 0");
  return module.putText(name);
}

/** A part of some bytes as text. Throws a `CorruptError` for what is no UTF-8. */
export function textOf(bytes: Uint8Array, at: number, length: number): string {
  if (length <= SHORT) {
    let text = "", index = 0;
    for (; index < length; index++) {
      const code = bytes[at + index]!;
      if (code > 0x7f) break;
      text += String.fromCharCode(code);
    }
    if (index === length) return text;
  }
  try {
    return DECODER.decode(bytes.subarray(at, at + length));
  } catch (cause) {
    throw new CorruptError("a text in the heap is no UTF-8; restore the heap from an export", {
      cause });
  }
}

/** The few functions of WASI that the module's standard library names. */
function wasi(name: string, memory: () => WebAssembly.Memory): (...rest: never[]) => number {
  switch (name) {
    case "environ_sizes_get":
      return (count: number, bytes: number) => {
        const view = new DataView(memory().buffer);
        view.setUint32(count >>> 0, 0, true);
        view.setUint32(bytes >>> 0, 0, true);
        return 0;
      };
    case "environ_get":
    case "sched_yield":
      return () => 0;
    case "proc_exit":
      return () => { throw new WebAssembly.RuntimeError("the module ended itself"); };
    case "clock_time_get":
      return (_clock: number, _precision: bigint, out: number) => {
        const now = BigInt(Math.round(performance.now() * 1e6));
        new DataView(memory().buffer).setBigUint64(out >>> 0, now, true);
        return 0;
      };
    default:
      return () => NOT_SUPPORTED;
  }
}
