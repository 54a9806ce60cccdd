/**
 * What an applet may call of its host, by name, and the imports by which it does: `host_import`
 * finds a function, `host_call` runs it, `host_result` hands out a result that had no room.
 *
 * Invariants: a function sees a copy of what the applet passes. What it throws is the applet's to
 * see as words, never as an exception through the applet's frames.
 */
import { UnsupportedError } from "./errors.js";
import { Status } from "./heaps.js";
import { describe } from "./input.js";

/** A result: bytes or text; nothing is no byte. */
export type Output = Uint8Array | string | undefined | void;
/** Input in, output out. It throws a `HostFailure` for a failure with a code of its own. */
export type HostFunction = (input: Uint8Array) => Output | Promise<Output>;

/** A failure of a host function, which the applet sees: a code that is not 0, and words. */
export class HostFailure extends Error {
  override name = "HostFailure";
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

export const PAYLOAD_BYTES_MAX = 64 << 20;
const RECORD_BYTES = 8;
const TIMEOUT_MS = 10_000;
/** Timers count in 32 bits: one of more, as `Infinity` is, would go off at once. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

interface Place { readonly at: number; readonly bytes: number }

export class HostFunctions {
  /** Whether one runs, up to where it waits for something. */
  isRunning = false;
  /** Whether the applet can be suspended while one waits. */
  mayWait = false;
  readonly #functions: readonly (readonly [string, HostFunction])[];
  readonly #memory: () => WebAssembly.Memory;
  readonly #timeout: number;
  #kept = new Uint8Array();

  constructor(
    functions: Readonly<Record<string, HostFunction>>, memory: () => WebAssembly.Memory,
    timeout = TIMEOUT_MS,
  ) {
    this.#functions = Object.entries(functions);
    this.#memory = memory;
    this.#timeout = Math.min(timeout, TIMEOUT_MS_MAX);
  }

  readonly imports: Record<string, (...rest: number[]) => number | Promise<number>> = {
    host_import: (name, bytes) => {
      const wanted = new TextDecoder().decode(this.#bytes(name! >>> 0, bytes! >>> 0));
      const index = this.#functions.findIndex(([own]) => own === wanted);
      return index < 0 ? -Status.notGranted : index;
    },
    host_call: (index, input, inputBytes, output, capacity, record) => {
      if (inputBytes! >>> 0 > PAYLOAD_BYTES_MAX) return Status.tooLarge;
      const copy = this.#bytes(input! >>> 0, inputBytes! >>> 0).slice();
      const to = { at: output! >>> 0, bytes: capacity! >>> 0 };
      this.#bytes(to.at, to.bytes);
      this.#bytes(record! >>> 0, RECORD_BYTES);
      const found = this.#functions[index!];
      if (found === undefined) return Status.notGranted;
      let result: Output | Promise<Output>;
      try {
        this.isRunning = true;
        result = found[1](copy);
      } catch (error) {
        return this.#fail(error, to, record! >>> 0);
      } finally {
        this.isRunning = false;
      }
      if (!(result instanceof Promise)) return this.#give(result, to, record! >>> 0);
      if (!this.mayWait) {
        // WebAssembly would take the promise for the status 0, and read a record that nobody wrote.
        result.catch(() => {});
        const words = "the function of the host is asynchronous, and the browser has no stack switching (JSPI)";
        return this.#fail(new UnsupportedError(words), to, record! >>> 0);
      }
      return this.#bounded(result).then(
        (value) => this.#give(value, to, record! >>> 0),
        (error) => this.#fail(error, to, record! >>> 0),
      );
    },
    host_result: (output, bytes) => {
      const target = this.#bytes(output! >>> 0, bytes! >>> 0);
      const kept = this.#kept;
      this.#kept = new Uint8Array();
      if (kept.length !== target.length) return Status.badRange;
      target.set(kept);
      return Status.ok;
    },
  };

  #bounded(result: Promise<Output>): Promise<Output> {
    let timer: ReturnType<typeof setTimeout>;
    const late = new Promise<never>((_, failed) => {
      const words = `the function took longer than ${this.#timeout} ms`;
      timer = setTimeout(() => failed(new Error(words)), this.#timeout);
    });
    return Promise.race([result, late]).finally(() => clearTimeout(timer));
  }

  /** Hands out what a function returned; from JavaScript that may be anything. */
  #give(output: Output, to: Place, record: number): number {
    if (output === undefined || typeof output === "string" || output instanceof Uint8Array) {
      return this.#answer(Status.ok, 0, output, to, record);
    }
    const words = `the function of the host returned ${describe(output)}, and not a Uint8Array or text`;
    return this.#fail(new TypeError(words), to, record);
  }

  #fail(error: unknown, to: Place, record: number): number {
    const words = wordsOf(error);
    // Anything else may throw when it is made a number, and through the applet's frames.
    const code = error instanceof HostFailure && typeof error.code === "number" ? error.code | 0 : 0;
    // With a code of 0 the applet would take the words for a result.
    return this.#answer(code === 0 ? Status.failed : Status.ok, code, words, to, record);
  }

  #answer(status: number, code: number, output: Output, to: Place, record: number): number {
    const bytes = typeof output === "string" ? new TextEncoder().encode(output)
      : output ?? new Uint8Array();
    if (bytes.length > PAYLOAD_BYTES_MAX) return Status.tooLarge;
    const told = new DataView(this.#memory().buffer, record, RECORD_BYTES);
    told.setInt32(0, code, true);
    told.setUint32(4, bytes.length, true);
    if (bytes.length <= to.bytes) this.#bytes(to.at, bytes.length).set(bytes);
    else this.#kept = bytes.slice();
    return status;
  }

  /** A part of the applet's memory; one that is not there ends the applet. */
  #bytes(at: number, bytes: number): Uint8Array {
    return partOf(this.#memory(), at, bytes);
  }
}

/** What an error says. JavaScript throws anything, also what cannot be made text. */
function wordsOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return "the function of the host threw what has no words";
  }
}

/** A part of an applet's memory. Throws a `RuntimeError`, which ends the applet, where it has none. */
export function partOf(memory: WebAssembly.Memory, at: number, bytes: number): Uint8Array {
  // Languages have pointers to nothing that lead anywhere.
  if (bytes === 0) return new Uint8Array();
  if (at + bytes > memory.buffer.byteLength) {
    throw new WebAssembly.RuntimeError(`${bytes} bytes at ${at} do not lie in the applet's memory`);
  }
  return new Uint8Array(memory.buffer, at, bytes);
}
