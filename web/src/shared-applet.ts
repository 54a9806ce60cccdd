/**
 * One applet for all tabs of an origin: one tab runs it, the others have their calls made there, and
 * when it closes or dies the tab that has waited longest starts it anew, with all that was
 * committed.
 *
 * Invariants: a Web Lock says which tab runs the applet. A call is made once at most: one that was
 * sent to a tab that is gone is not sent again, since it may have been made.
 */
import type { Applet } from "./applet.js";
import { AppletEndedError, CallError, OwnerLostError } from "./errors.js";

/** `moved`: the call was not made, as the tab is leaving. */
type Answer = { readonly output: Uint8Array } | { readonly error: Told } | { readonly moved: true };
/** An error as it travels. */
interface Told { readonly name: string; readonly message: string; readonly code?: number }
type Message =
  | { readonly kind: "who" }
  | { readonly kind: "owner"; readonly owner: string }
  | { readonly kind: "leaving"; readonly owner: string }
  | { readonly kind: "failed"; readonly error: Told }
  | { readonly kind: "call"; readonly to: string; readonly from: string; readonly call: number;
      readonly name: string; readonly input: Uint8Array }
  | { readonly kind: "answer"; readonly to: string; readonly call: number; readonly answer: Answer };
interface Waiting {
  readonly owner: string;
  readonly resolve: (output: Uint8Array | undefined) => void;
  readonly reject: (error: unknown) => void;
}

export class SharedApplet {
  readonly #self = crypto.randomUUID();
  readonly #channel: BroadcastChannel;
  readonly #start: () => Promise<Applet>;
  readonly #closing = new AbortController();
  readonly #calls = new Map<number, Waiting>();
  #applet: Applet | undefined;
  #release: (() => void) | undefined;
  #owner: string | undefined;
  /** Fulfilled when somebody runs the applet. */
  #known = defer<string>();
  #lastCall = 0;

  private constructor(name: string, start: () => Promise<Applet>) {
    this.#start = start;
    this.#channel = new BroadcastChannel(`holdfast:${name}`);
    this.#channel.onmessage = ({ data }) => this.#take(data as Message);
    this.#post({ kind: "who" });
    const options = { signal: this.#closing.signal };
    navigator.locks.request(`holdfast-owner:${name}`, options, () => this.#own()).catch((error) => {
      if (!this.#closing.signal.aborted) this.#fail(error);
    });
  }

  /**
   * Joins the tabs that share an applet under a name. `start` is called in the tab that is to run
   * it: let it open its heaps with `wait`. Rejects where that fails.
   */
  static async open(name: string, start: () => Promise<Applet>): Promise<SharedApplet> {
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
   * away before it answered; whether the call was made is not known then.
   */
  async call(name: string, input: Uint8Array | string = ""): Promise<Uint8Array> {
    this.#closing.signal.throwIfAborted();
    const bytes = typeof input === "string" ? new TextEncoder().encode(input) : input;
    for (;;) {
      const owner = await this.#known.promise;
      this.#closing.signal.throwIfAborted();
      if (this.#applet !== undefined) return await this.#applet.call(name, bytes);
      const call = ++this.#lastCall;
      const output = await new Promise<Uint8Array | undefined>((resolve, reject) => {
        this.#calls.set(call, { owner, resolve, reject });
        this.#post({ kind: "call", to: owner, from: this.#self, call, name, input: bytes });
      });
      if (output !== undefined) return output;
      if (this.#owner === owner) this.#unknow();
    }
  }

  /** Leaves; where the applet runs here, it is closed and another tab starts it. */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new AppletEndedError("the applet was closed in this tab"));
    this.#forget(this.#closing.signal.reason);
    this.#known.reject(this.#closing.signal.reason);
    try {
      if (this.#applet !== undefined) this.#post({ kind: "leaving", owner: this.#self });
      // Calls that came before are made and answered.
      await this.#applet?.close();
    } finally {
      this.#applet = undefined;
      this.#release?.();
      this.#channel.close();
    }
  }

  #post(message: Message): void {
    this.#channel.postMessage(message);
  }

  /** Runs the applet until this tab leaves. */
  async #own(): Promise<void> {
    try {
      this.#applet = await this.#start();
    } catch (error) {
      this.#post({ kind: "failed", error: told(error) });
      this.#fail(error);
      return;
    }
    if (this.#closing.signal.aborted) {
      await this.#applet.close();
      return;
    }
    this.#follow(this.#self);
    this.#post({ kind: "owner", owner: this.#self });
    await new Promise<void>((release) => { this.#release = release; });
  }

  #take(message: Message): void {
    switch (message.kind) {
      case "who":
        if (this.#applet !== undefined) this.#post({ kind: "owner", owner: this.#self });
        return;
      case "owner":
        this.#follow(message.owner);
        return;
      case "leaving":
        if (this.#owner === message.owner) this.#unknow();
        return;
      case "failed":
        this.#fail(errorOf(message.error));
        return;
      case "call":
        if (message.to !== this.#self) return;
        // Where this tab has left meanwhile, the other one learns of the next to run the applet.
        this.#answer(message.from, message.call, message).catch(() => {});
        return;
      case "answer": {
        const waiting = message.to === this.#self ? this.#calls.get(message.call) : undefined;
        if (waiting === undefined) return;
        this.#calls.delete(message.call);
        if ("error" in message.answer) waiting.reject(errorOf(message.answer.error));
        else waiting.resolve("output" in message.answer ? message.answer.output : undefined);
      }
    }
  }

  /** Makes a call for another tab. */
  async #answer(to: string, call: number, { name, input }: { name: string; input: Uint8Array }) {
    let answer: Answer = { moved: true };
    if (this.#applet !== undefined && !this.#closing.signal.aborted) {
      answer = await this.#applet.call(name, input)
        .then((output) => ({ output }), (error) => ({ error: told(error) }));
    }
    this.#post({ kind: "answer", to, call, answer });
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
    for (const [call, { owner: asked, reject }] of this.#calls) {
      if (asked === owner) continue;
      this.#calls.delete(call);
      reject(new OwnerLostError("the tab that ran the applet is gone; the call may have been made"));
    }
    this.#known.resolve(owner);
  }

  #fail(error: unknown): void {
    this.#forget(error);
    this.#known.reject(error);
    // The next call waits for the next tab to try.
    this.#unknow();
  }

  #forget(error: unknown): void {
    this.#calls.forEach(({ reject }) => reject(error));
    this.#calls.clear();
  }
}

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

function told(error: unknown): Told {
  if (!(error instanceof Error)) return { name: "Error", message: String(error) };
  const { name, message } = error;
  return error instanceof CallError ? { name, message, code: error.code } : { name, message };
}

function errorOf({ name, message, code }: Told): Error {
  if (code !== undefined) return new CallError(code, message);
  const error = new Error(message);
  error.name = name;
  return error;
}
