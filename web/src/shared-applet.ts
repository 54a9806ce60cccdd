/**
 * One applet for all tabs of an origin: one tab runs it, the others have their calls made there, and
 * when it closes or dies the tab that has waited longest starts it anew, with all that was
 * committed.
 *
 * Invariants: a Web Lock says which tab runs the applet. A call is made once at most: one that was
 * sent to a tab that is gone is not sent again, since it may have been made.
 */
import type { Applet } from "./applet.js";
import * as errors from "./errors.js";
import { bytesOf, type Input } from "./input.js";
import { CALL_IN_CHUNK, type CallOptions } from "./mailbox.js";

const { AppletEndedError, CallError, OwnerLostError, StorageFailedError, UnsupportedError } = errors;

/** `moved`: the call was not made, as the tab is leaving. */
type Answer = { readonly output: Uint8Array } | { readonly error: Told } | { readonly moved: true };
/** An error as it travels. */
interface Told { readonly name: string; readonly message: string; readonly code?: number }
interface RemoteCall {
  readonly to: string;
  readonly from: string;
  readonly call: number;
  readonly name: string;
  readonly input: Uint8Array;
  readonly commit?: boolean | undefined;
  /** Whether parts of the result are wanted as they come. */
  readonly streams: boolean;
}
type Message =
  | { readonly kind: "who" }
  | { readonly kind: "owner"; readonly owner: string }
  | { readonly kind: "leaving"; readonly owner: string }
  | { readonly kind: "call" } & RemoteCall
  | { readonly kind: "cancel"; readonly to: string; readonly from: string; readonly call: number }
  | { readonly kind: "chunk"; readonly to: string; readonly call: number; readonly bytes: Uint8Array }
  /** The last chunk was taken. */
  | { readonly kind: "more"; readonly to: string; readonly from: string; readonly call: number }
  | { readonly kind: "answer"; readonly to: string; readonly call: number; readonly answer: Answer };
/** A call that is made here for another tab. */
interface Guest {
  readonly control: AbortController;
  /** Fulfils what the applet waits for behind a chunk. */
  more: () => void;
}
interface Waiting {
  readonly owner: string;
  readonly onChunk: CallOptions["onChunk"];
  readonly resolve: (output: Uint8Array | undefined) => void;
  readonly reject: (error: unknown) => void;
}

export class SharedApplet {
  readonly #self = crypto.randomUUID();
  readonly #name: string;
  readonly #channel: BroadcastChannel;
  readonly #start: () => Promise<Applet>;
  readonly #closing = new AbortController();
  /** Fulfilled when this tab has left, and closed the applet if that ran here. */
  readonly #left = defer<void>();
  /** Calls that another tab makes for this one. */
  readonly #calls = new Map<number, Waiting>();
  /** Calls that are made here for others. */
  readonly #guests = new Map<string, Guest>();
  #applet: Applet | undefined;
  /** Whether this tab runs the applet, or waits for its turn. */
  #isInLine = false;
  #owner: string | undefined;
  /** Fulfilled when somebody runs the applet. */
  #known = defer<string>();
  /** Calls that wait for that. */
  #waiting = 0;
  #lastCall = 0;
  /** Whether an `onChunk` runs, up to where it waits for something. */
  #isGiving = false;

  private constructor(name: string, start: () => Promise<Applet>) {
    this.#name = name;
    this.#start = start;
    this.#channel = new BroadcastChannel(`holdfast:${name}`);
    this.#channel.onmessage = ({ data }) => this.#take(data as Message);
    // By this lock another tab learns that we are gone.
    navigator.locks.request(tabLock(this.#self), () => this.#left.promise).catch(() => {});
    this.#post({ kind: "who" });
    this.#stepInLine();
  }

  /**
   * Joins the tabs that share an applet under a name. `start` is called in the tab that is to run
   * it: let it open its heaps with `wait`. Rejects where that fails, and with an `UnsupportedError` where
   * the page has no Web Locks.
   */
  static async open(name: string, start: () => Promise<Applet>): Promise<SharedApplet> {
    if (navigator.locks === undefined) {
      throw new UnsupportedError("a shared applet needs Web Locks, which a page has over https or from this \
machine");
    }
    const shared = new SharedApplet(name, start);
    try {
      await shared.#known.promise;
      return shared;
    } catch (error) {
      await shared.close();
      throw error;
    }
  }

  /** Whether the applet runs in this tab. */
  get isOwner(): boolean {
    return this.#applet !== undefined;
  }

  /**
   * As `call` of `Applet`. Rejects with an `OwnerLostError` when the tab that runs the applet went
   * away before it answered; whether the call was made is not known then. An applet of which a call was
   * rejected with a `StorageFailedError` is closed, and started anew by the next tab. Where this tab's `start`
   * failed, the calls that wait are rejected with that, and the next one has it tried again.
   */
  async call(name: string, input: Input = "", options: CallOptions = {}): Promise<Uint8Array> {
    if (this.#isGiving) throw new Error(CALL_IN_CHUNK);
    const bytes = bytesOf(input);
    const noted = this.#noted(options);
    for (;;) {
      this.#closing.signal.throwIfAborted();
      options.signal?.throwIfAborted();
      this.#stepInLine();
      this.#waiting += 1;
      const owner = await unlessAborted(this.#known.promise, options.signal)
        .finally(() => { this.#waiting -= 1; });
      this.#closing.signal.throwIfAborted();
      const applet = this.#applet;
      if (applet !== undefined) return await callHere(applet, name, bytes, noted);
      // While the call waited, the applet of this tab ended. A tab does not receive its own messages: a call
      // sent to this tab would get no answer.
      if (owner === this.#self) continue;
      const output = await this.#callThere(owner, name, bytes, noted);
      if (output !== undefined) return output;
      if (this.#owner === owner) this.#unknow();
    }
  }

  /**
   * Leaves; where the applet runs here, it is closed and another tab starts it. One that is being
   * started here is closed when it has started, which nobody waits for. Closing again only waits until this
   * tab has left.
   */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return await this.#left.promise;
    this.#closing.abort(new AppletEndedError("the applet was closed in this tab"));
    this.#forget(this.#closing.signal.reason);
    this.#known.reject(this.#closing.signal.reason);
    try {
      if (this.#applet !== undefined) this.#post({ kind: "leaving", owner: this.#self });
      // Calls that came before are made and answered.
      await this.#applet?.close();
    } finally {
      this.#applet = undefined;
      this.#left.resolve();
      this.#channel.close();
    }
  }

  #post(message: Message): void {
    this.#channel.postMessage(message);
  }

  /** The same options, with a note while `onChunk` runs: a call that it makes would wait for it. */
  #noted(options: CallOptions): CallOptions {
    const { onChunk } = options;
    if (onChunk === undefined) return options;
    return {
      ...options,
      onChunk: (bytes) => {
        this.#isGiving = true;
        try {
          return onChunk(bytes);
        } finally {
          this.#isGiving = false;
        }
      },
    };
  }

  /** Has the tab that runs the applet make a call; `undefined` where it did not, as it is leaving. */
  async #callThere(
    owner: string, name: string, bytes: Uint8Array, { signal, commit, onChunk }: CallOptions,
  ): Promise<Uint8Array | undefined> {
    signal?.throwIfAborted();
    const call = ++this.#lastCall;
    // All of the buffer would be copied for each tab, and not only the part that is meant.
    const input = bytes.byteLength < bytes.buffer.byteLength ? bytes.slice() : bytes;
    const cancel = () => {
      this.#post({ kind: "cancel", to: owner, from: this.#self, call });
      this.#calls.get(call)?.reject(signal!.reason);
      this.#calls.delete(call);
    };
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      return await new Promise((resolve, reject) => {
        this.#calls.set(call, { owner, onChunk, resolve, reject });
        this.#post({ kind: "call", to: owner, from: this.#self, call, name, input, commit,
          streams: onChunk !== undefined });
      });
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Waits for its turn to run the applet, if it does not wait yet. */
  #stepInLine(): void {
    if (this.#isInLine || this.#closing.signal.aborted) return;
    this.#isInLine = true;
    const options = { signal: this.#closing.signal };
    navigator.locks.request(`holdfast-owner:${this.#name}`, options, () => this.#own())
      .catch((error) => {
        if (!this.#closing.signal.aborted) this.#fail(error);
      })
      .finally(() => {
        this.#isInLine = false;
        // They were made while this tab's turn was coming to its end.
        if (this.#waiting > 0) this.#stepInLine();
      });
  }

  /**
   * Runs the applet until it ends or this tab leaves. A tab whose applet did not start, or ended, steps
   * in line again with its next call: an applet that always traps is not started without end.
   */
  async #own(): Promise<void> {
    let applet: Applet;
    try {
      applet = await this.#start();
    } catch (error) {
      // The tab that ran the applet before is gone, and answers no call.
      this.#loseCalls();
      this.#fail(error);
      return;
    }
    if (this.#closing.signal.aborted) {
      await applet.close();
      return;
    }
    this.#applet = applet;
    this.#follow(this.#self);
    this.#post({ kind: "owner", owner: this.#self });
    await Promise.race([applet.ended, this.#left.promise]);
    if (this.#closing.signal.aborted) {
      await this.#left.promise;
      return;
    }
    // It trapped, or returned: its heaps are as of its last commit.
    this.#applet = undefined;
    this.#unknow();
    this.#post({ kind: "leaving", owner: this.#self });
    await applet.close().catch(() => {});
  }

  #take(message: Message): void {
    if ("to" in message && message.to !== this.#self) return;
    switch (message.kind) {
      case "who":
        // A tab that leaves answers no call.
        if (this.#applet === undefined || this.#closing.signal.aborted) return;
        this.#post({ kind: "owner", owner: this.#self });
        return;
      case "owner":
        // While this tab runs the applet that is the late word of one that ran it before.
        if (this.#applet === undefined) this.#follow(message.owner);
        return;
      case "leaving":
        if (this.#owner === message.owner) this.#unknow();
        return;
      case "call":
        // Where this tab has left meanwhile, the other one learns of the next to run the applet.
        this.#answer(message).catch(() => {});
        return;
      case "cancel":
        this.#guests.get(keyOf(message))?.control.abort();
        return;
      case "chunk":
        void this.#takeChunk(message.call, message.bytes);
        return;
      case "more":
        this.#guests.get(keyOf(message))?.more();
        return;
      case "answer": {
        const waiting = this.#calls.get(message.call);
        if (waiting === undefined) return;
        this.#calls.delete(message.call);
        if ("error" in message.answer) waiting.reject(errorOf(message.answer.error));
        else waiting.resolve("output" in message.answer ? message.answer.output : undefined);
      }
    }
  }

  /** Hands out a part of a result, and asks for the next one when it was taken. */
  async #takeChunk(call: number, bytes: Uint8Array): Promise<void> {
    const waiting = this.#calls.get(call);
    if (waiting === undefined) return;
    // The call may be over by then, and this tab have left.
    const isOver = () => this.#calls.get(call) !== waiting;
    try {
      await waiting.onChunk?.(bytes);
    } catch (error) {
      if (isOver()) return;
      this.#calls.delete(call);
      waiting.reject(error);
      this.#post({ kind: "cancel", to: waiting.owner, from: this.#self, call });
      return;
    }
    if (isOver()) return;
    this.#post({ kind: "more", to: waiting.owner, from: this.#self, call });
  }

  /** Makes a call for another tab. */
  async #answer(asked: RemoteCall): Promise<void> {
    const { from: to, call, name, input, commit, streams } = asked;
    let answer: Answer = { moved: true };
    if (this.#applet !== undefined && !this.#closing.signal.aborted) {
      const control = new AbortController();
      const guest: Guest = { control, more: () => {} };
      control.signal.addEventListener("abort", () => guest.more());
      this.#guests.set(keyOf(asked), guest);
      const onChunk = (bytes: Uint8Array) => new Promise<void>((more) => {
        guest.more = more;
        this.#post({ kind: "chunk", to, call, bytes });
      });
      if (streams) this.#endWith(to, control);
      const options = { signal: control.signal, ...(commit !== undefined && { commit }),
        ...(streams && { onChunk }) };
      answer = await callHere(this.#applet, name, input, options)
        .then((output) => ({ output }), (error) => ({ error: told(error) }));
      this.#guests.delete(keyOf(asked));
      control.abort();
    }
    this.#post({ kind: "answer", to, call, answer });
  }

  /** Ends a call whose tab is gone: nobody would take its next chunk. */
  #endWith(tab: string, control: AbortController): void {
    navigator.locks.request(tabLock(tab), { signal: control.signal, mode: "shared" }, () => control.abort())
      .catch(() => {});
  }

  /** Who runs the applet will be told. */
  #unknow(): void {
    this.#known = defer();
    this.#owner = undefined;
  }

  /** Another tab, or this one, runs the applet now. */
  #follow(owner: string): void {
    if (this.#owner === owner) return;
    if (this.#owner !== undefined) this.#unknow();
    this.#owner = owner;
    this.#loseCalls(owner);
    this.#known.resolve(owner);
  }

  /** Calls that were sent to another tab than this one have no answer any more. */
  #loseCalls(owner?: string): void {
    for (const [call, { owner: asked, reject }] of this.#calls) {
      if (asked === owner) continue;
      this.#calls.delete(call);
      reject(new OwnerLostError("the tab that ran the applet is gone; the call may have been made"));
    }
  }

  #fail(error: unknown): void {
    this.#known.reject(error);
    this.#unknow();
  }

  #forget(error: unknown): void {
    this.#calls.forEach(({ reject }) => reject(error));
    this.#calls.clear();
  }
}

/** Calls the applet of this tab. One whose disk failed is closed, so that the next tab starts it. */
async function callHere(
  applet: Applet, name: string, input: Uint8Array, options: CallOptions,
): Promise<Uint8Array> {
  return await applet.call(name, input, options).catch((error) => {
    if (error instanceof StorageFailedError) void applet.close().catch(() => {});
    throw error;
  });
}

const keyOf = ({ from, call }: { from: string; call: number }) => `${from} ${call}`;
const tabLock = (tab: string) => `holdfast-tab:${tab}`;

interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
}

function defer<T>(): Deferred<T> {
  let settle!: Omit<Deferred<T>, "promise">;
  const promise = new Promise<T>((resolve, reject) => { settle = { resolve, reject }; });
  // It may be rejected while no call waits for it.
  promise.catch(() => {});
  return { promise, ...settle };
}

/** What the promise comes to, unless the signal is aborted before. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const aborted = () => reject(signal.reason);
    signal.addEventListener("abort", aborted, { once: true });
    const over = <V>(end: (value: V) => void) => (value: V) => {
      signal.removeEventListener("abort", aborted);
      end(value);
    };
    promise.then(over(resolve), over(reject));
  });
}

function told(error: unknown): Told {
  if (!(error instanceof Error)) return { name: "Error", message: String(error) };
  const { name, message } = error;
  return error instanceof CallError ? { name, message, code: error.code } : { name, message };
}

function errorOf({ name, message, code }: Told): Error {
  if (code !== undefined) return new CallError(code, message);
  if (name === "AbortError") return new DOMException(message, name);
  // By the names of exports: those of classes are others in minified code.
  const known: object = { ...errors, RangeError, TypeError };
  if (Object.hasOwn(known, name)) {
    return new (known as Record<string, new (message: string) => Error>)[name]!(message);
  }
  const error = new Error(message);
  error.name = name;
  return error;
}
