/**
 * Messages between an applet that serves calls and its host: the imports `receive`, which waits for
 * one, and `send`; headers and kinds as `docs/format.md` draws them.
 *
 * Invariants: what a call stored is committed before its result is handed out, unless the caller
 * asked for no commit. A call has exactly one end: a result, a failure, or the end of the applet.
 */
import { AppletEndedError, CallError, UnsupportedError } from "./errors.js";
import { Status } from "./heaps.js";
import { partOf, PAYLOAD_BYTES_MAX } from "./host-functions.js";

const HEADER_BYTES = 48;
const Kind = {
  call: 1, cancel: 2, end: 4, hello: 16, result: 17, chunk: 18, failure: 19,
} as const;
const EXPORTS_MAX = 1024;
const NAME_BYTES_MAX = 64;

/** How a function is called. */
export interface CallOptions {
  /** Ends the call: before it begins, or with the next part of its result. */
  readonly signal?: AbortSignal;
  /**
   * Whether the heaps are committed before the result is handed out, which reads them whole: `false`
   * for a function that only reads. What it stores all the same goes with the next commit.
   */
  readonly commit?: boolean;
  /**
   * Takes the parts of a streaming result; the applet waits for the promise that it returns. What it
   * throws ends the call, which is rejected with that. It must not call the same applet: a call that it
   * waits for would wait for it. One that it makes before it waits for anything is rejected, also if nobody
   * waits for that.
   */
  readonly onChunk?: (bytes: Uint8Array) => void | Promise<void>;
}

interface Call {
  readonly resolve: (bytes: Uint8Array) => void;
  readonly reject: (error: unknown) => void;
  readonly options: CallOptions;
  /** `onChunk` threw: no more of the result is wanted. */
  failure?: { readonly error: unknown };
}

interface Message {
  readonly kind: number;
  readonly call: number;
  readonly index: number;
  readonly payload: Uint8Array;
}

/** Why a call that an `onChunk` makes of the applet that waits for it is none. */
export const CALL_IN_CHUNK = "onChunk called the applet that waits for it; call it when the streaming call has \
ended";

export class Mailbox {
  /** The names of the applet's functions, once it is ready. */
  exports: readonly string[] = [];
  /** Whether an `onChunk` runs, up to where it waits for something. */
  isGiving = false;
  readonly ready: Promise<void>;
  readonly #memory: () => WebAssembly.Memory;
  readonly #commit: () => Promise<unknown> | undefined;
  readonly #queue: Message[] = [];
  readonly #calls = new Map<number, Call>();
  #arrived: (() => void) | undefined;
  #isReady!: { resolve: () => void; reject: (error: unknown) => void };
  #lastCall = 0;
  #hasEnd = false;
  #ended: unknown;

  constructor(memory: () => WebAssembly.Memory, commit: () => Promise<unknown> | undefined) {
    this.#memory = memory;
    this.#commit = commit;
    this.ready = new Promise((resolve, reject) => { this.#isReady = { resolve, reject }; });
    // Who runs an applet to its end does not ask.
    this.ready.catch(() => {});
  }

  readonly imports: Record<string, (...rest: number[]) => number | Promise<number>> = {
    receive: (header, payload, capacity) => {
      const [to, place, room] = [header! >>> 0, payload! >>> 0, capacity! >>> 0];
      partOf(this.#memory(), to, HEADER_BYTES);
      partOf(this.#memory(), place, room);
      if (this.#queue.length > 0 || this.#hasEnd) return this.#receive(to, place, room);
      return this.#receiveLater(to, place, room);
    },
    send: (header, payload) => {
      const bytes = partOf(this.#memory(), header! >>> 0, HEADER_BYTES);
      const view = new DataView(bytes.slice().buffer);
      const length = view.getUint32(0, true);
      const call = Number(view.getBigUint64(8, true));
      const kind = view.getUint16(4, true);
      const waiting = this.#calls.get(call);
      const isUnwanted = waiting?.options.signal?.aborted || waiting?.failure !== undefined;
      if (kind === Kind.chunk && isUnwanted) return Status.cancelled;
      if (length > PAYLOAD_BYTES_MAX) return Status.tooLarge;
      const copy = partOf(this.#memory(), payload! >>> 0, length).slice();
      if (kind === Kind.chunk && view.getBigUint64(32, true) !== 0n) {
        throw new WebAssembly.RuntimeError("the chunk names shared memory, which a page does not offer");
      }
      return this.#take({ kind, call, index: view.getInt32(16, true), payload: copy });
    },
  };

  call(name: string, input: Uint8Array, options: CallOptions): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#ended !== undefined) throw this.#ended;
      if (this.#hasEnd) throw new AppletEndedError("the applet was closed");
      options.signal?.throwIfAborted();
      const index = this.exports.indexOf(name);
      if (index < 0) {
        const names = this.exports.join(", ");
        throw new UnsupportedError(`the applet has no function ${name}; it has ${names}`);
      }
      if (input.length > PAYLOAD_BYTES_MAX) {
        throw new RangeError(`the input has ${input.length} bytes; ${PAYLOAD_BYTES_MAX} are the most`);
      }
      const call = ++this.#lastCall;
      // A view of the applet's own memory ends when that grows.
      const payload = input.buffer === this.#memory().buffer ? input.slice() : input;
      const message = { kind: Kind.call, call, index, payload };
      const aborted = () => {
        const at = this.#queue.indexOf(message);
        if (at < 0) return;
        this.#queue.splice(at, 1);
        this.#calls.delete(call);
        reject(options.signal!.reason);
      };
      const over = <T>(end: (value: T) => void) => (value: T) => {
        // A signal of many calls keeps no input of one that is done.
        options.signal?.removeEventListener("abort", aborted);
        end(value);
      };
      options.signal?.addEventListener("abort", aborted, { once: true });
      this.#calls.set(call, { resolve: over(resolve), reject: over(reject), options });
      this.#queue.push(message);
      this.#wake();
    });
  }

  /** Has the applet return from serving, after the calls that wait. */
  end(): void {
    this.#hasEnd = true;
    this.#wake();
  }

  /** The applet has ended: nobody waits for it any more. */
  fail(error: unknown): void {
    this.#ended = error;
    const words = "the applet ended before it served calls";
    this.#isReady.reject(new UnsupportedError(words, { cause: error }));
    this.#calls.forEach(({ reject }) => reject(error));
    this.#calls.clear();
  }

  /**
   * Waits for a message. One that came may be taken back at any moment, so the applet has it in that in which
   * it is found.
   */
  async #receiveLater(to: number, place: number, room: number): Promise<number> {
    while (this.#queue.length === 0 && !this.#hasEnd) {
      await new Promise<void>((arrived) => { this.#arrived = arrived; });
    }
    return this.#receive(to, place, room);
  }

  #wake(): void {
    this.#arrived?.();
    this.#arrived = undefined;
  }

  #receive(to: number, place: number, room: number): number {
    const message = this.#queue[0]
      ?? { kind: Kind.end, call: 0, index: 0, payload: new Uint8Array() };
    const { kind, call, index, payload } = message;
    if (payload.length > room) return -payload.length;
    this.#queue.shift();
    partOf(this.#memory(), place, payload.length).set(payload);
    const header = new DataView(new ArrayBuffer(HEADER_BYTES));
    header.setUint32(0, payload.length, true);
    header.setUint16(4, kind, true);
    header.setBigUint64(8, BigInt(call), true);
    header.setUint32(20, index, true);
    partOf(this.#memory(), to, HEADER_BYTES).set(new Uint8Array(header.buffer));
    return payload.length;
  }

  #take({ kind, call, index: status, payload }: Message): number | Promise<number> {
    if (kind === Kind.hello) {
      this.exports = namesOf(payload);
      this.#isReady.resolve();
      return Status.ok;
    }
    const waiting = this.#calls.get(call);
    // The caller ended the call.
    if (waiting === undefined) return Status.ok;
    if (kind === Kind.chunk) {
      // As words to the caller, and never through the applet's frames: others may call it, too.
      const refused = (error: unknown) => {
        waiting.failure = { error };
        return Status.cancelled;
      };
      try {
        this.isGiving = true;
        const taken = waiting.options.onChunk?.(payload);
        return taken instanceof Promise ? taken.then(() => Status.ok, refused) : Status.ok;
      } catch (error) {
        return refused(error);
      } finally {
        this.isGiving = false;
      }
    }
    if (kind !== Kind.result && kind !== Kind.failure) {
      throw new WebAssembly.RuntimeError(`the applet sent a message of kind ${kind}, which is none`);
    }
    this.#calls.delete(call);
    const answer = () => {
      if (waiting.failure !== undefined) waiting.reject(waiting.failure.error);
      else if (waiting.options.signal?.aborted) waiting.reject(waiting.options.signal.reason);
      else if (kind === Kind.result) waiting.resolve(payload);
      else waiting.reject(new CallError(status, new TextDecoder().decode(payload)));
      return Status.ok;
    };
    const refuse = (error: unknown) => {
      waiting.reject(error);
      return Status.ok;
    };
    if (waiting.options.commit === false) return answer();
    try {
      const settled = this.#commit();
      return settled === undefined ? answer() : settled.then(answer, refuse);
    } catch (error) {
      return refuse(error);
    }
  }
}

function namesOf(payload: Uint8Array): string[] {
  const names = [];
  for (let at = 0; at < payload.length; ) {
    const length = payload[at]!;
    const name = payload.subarray(at + 1, at + 1 + length);
    if (length === 0 || length > NAME_BYTES_MAX || name.length !== length
        || names.length === EXPORTS_MAX) {
      throw new WebAssembly.RuntimeError("the applet's list of functions is none");
    }
    names.push(new TextDecoder().decode(name));
    at += 1 + length;
  }
  return names;
}
