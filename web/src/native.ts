/**
 * Applets that run on this machine, outside of the browser: `holdfast serve` runs them in its jail,
 * and this module speaks with it (`docs/serve-protocol.md`). It works in a page and in a worker, and
 * needs no COOP or COEP headers.
 *
 * Invariants: an applet is named by the SHA-256 of its bytes, which are uploaded only where the
 * server lacks them. A call has exactly one end. No more calls and bytes are on their way than the
 * server takes, and no more parts of a stream than are read.
 */
import { AppletEndedError, CallError, LockedError, QuotaError } from "./errors.js";
import { bytesOf, type Input } from "./input.js";

const VERSION = 1;
const APPLET = 1;
const CHUNK_BYTES = 1 << 20;
const HEADER_BYTES = 10;
const STREAMS = 1;
const CONTINUES = 1;
const To = { hello: 1, start: 2, upload: 3, uploaded: 4, call: 5, cancel: 6, more: 7, close: 8 } as const;
const From = {
  welcome: 0x81, need: 0x82, started: 0x83, part: 0x84, done: 0x85, failed: 0x86, ended: 0x87,
} as const;

/** What a `NativeError` is about. */
export type NativeFailure =
  | "no-server" | "unknown-function" | "too-large" | "denied" | "refused" | "wrong-hash"
  | "not-an-applet" | "other";

/** The server of native applets cannot be reached, or refuses what it was asked for. */
export class NativeError extends Error {
  override name = "NativeError";
  constructor(readonly failure: NativeFailure, message: string) {
    super(message);
  }
}

/** A heap that a native applet is granted; it belongs to the origin of the page. */
export interface NativeHeap {
  /** Its name on this machine. */
  readonly heap: string;
  /** Its name in the applet; the same, unless said. */
  readonly name?: string;
  readonly access?: "read-write" | "read-only";
}

/** How a native applet is started. */
export interface NativeOptions {
  /** The server, as `http://127.0.0.1:PORT`; the one that the page came from, unless said. */
  readonly server?: string | URL;
  /** The first one is that of calls that name none. */
  readonly heaps?: readonly (string | NativeHeap)[];
  /** Within the limits of the server, which hold otherwise. */
  readonly limits?: {
    readonly memoryBytes?: number;
    readonly callTimeoutMs?: number;
    readonly threads?: number;
  };
}

/** How a function is called. */
export interface NativeCallOptions {
  /** Cancels the call. */
  readonly signal?: AbortSignal;
}

interface ServerLimits {
  readonly frameBytes: number;
  readonly appletBytes: number;
  readonly pendingCalls: number;
  readonly pendingBytes: number;
  readonly partsAhead: number;
}

/** A call that is not done. */
interface PendingCall {
  readonly bytes: number;
  readonly isStream: boolean;
  /** A whole part, of a streaming call. */
  readonly part: (bytes: Uint8Array<ArrayBuffer>) => void;
  readonly done: (bytes: Uint8Array<ArrayBuffer>) => void;
  readonly failed: (error: unknown) => void;
  /** Pieces of what comes. */
  pieces: Uint8Array<ArrayBuffer>[];
}

/** A call that waits for those before it, and for room. */
interface Turn {
  readonly bytes: number;
  readonly isStream: boolean;
  readonly make: () => void;
  readonly fail: (error: unknown) => void;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** An applet that runs on this machine. */
export class NativeApplet {
  /** The names of its functions. */
  readonly functions: readonly string[];
  /** What this machine could not give to its jail. */
  readonly notes: readonly string[];
  readonly #socket: Socket;

  private constructor(socket: Socket, started: { functions: string[]; notes: string[] }) {
    this.#socket = socket;
    this.functions = started.functions;
    this.notes = started.notes;
  }

  /**
   * Starts an applet: a program for this machine, or WebAssembly. A failure is a `NativeError`, a
   * `LockedError` while a heap is open elsewhere, a `QuotaError` where there is no room, or an
   * `AppletEndedError` when the applet ends before it serves.
   */
  static async open(
    source: string | URL | Blob | BufferSource,
    options: NativeOptions = {},
  ): Promise<NativeApplet> {
    const bytes = await programOf(source);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const sha256 = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    const heaps = (options.heaps ?? []).map((heap) => typeof heap === "string" ? { heap } : heap);
    const socket = await Socket.connect(new URL(options.server ?? self.location.origin));
    try {
      const started = await socket.start({ sha256, heaps, limits: options.limits ?? {} }, bytes);
      return new NativeApplet(socket, started);
    } catch (error) {
      socket.drop();
      throw error;
    }
  }

  /**
   * Calls a function; what it streams comes before what it returns. A failure of the function is a
   * `CallError`; an applet that dies is an `AppletEndedError`, and its heaps are as of the last
   * commit or store.
   */
  async call(
    name: string,
    input: Input = new Uint8Array(),
    options: NativeCallOptions = {},
  ): Promise<Uint8Array<ArrayBuffer>> {
    const ignored = () => {};
    const bytes = bytesOf(input);
    return await new Promise((done, failed) => {
      this.#socket.call(name, bytes, options, false, { part: ignored, done, failed }).catch(failed);
    });
  }

  /** Calls a function and hands out the parts of its result as they come. */
  async *stream(
    name: string,
    input: Input = new Uint8Array(),
    options: NativeCallOptions = {},
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, undefined> {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let isDone = false, failure: { error: unknown } | undefined, arrived = () => {};
    const call = await this.#socket.call(name, bytesOf(input), options, true, {
      part: (bytes) => { parts.push(bytes); arrived(); },
      done: () => { isDone = true; arrived(); },
      failed: (error) => { failure = { error }; arrived(); },
    });
    let taken = 0;
    try {
      for (;;) {
        const part = parts.shift();
        if (part) {
          taken += 1;
          // In good time: the server goes on meanwhile.
          if (taken * 2 >= this.#socket.partsAhead) {
            this.#socket.more(call, taken);
            taken = 0;
          }
          yield part;
        } else if (failure) {
          throw failure.error;
        } else if (isDone) {
          return;
        } else {
          await new Promise<void>((resolve) => { arrived = resolve; });
        }
      }
    } finally {
      if (!isDone && !failure) this.#socket.cancel(call);
    }
  }

  /** Ends the applet behind the calls that wait, and closes its heaps. Open streams are cancelled. */
  async close(): Promise<void> {
    await this.#socket.close();
  }
}

async function programOf(source: string | URL | Blob | BufferSource): Promise<Uint8Array<ArrayBuffer>> {
  if (source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  if (typeof source === "string" || source instanceof URL) {
    const answer = await fetch(source);
    if (!answer.ok) throw new NativeError("refused", `${source}: the server answers ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  }
  // A copy: the caller may go on with its bytes.
  return new Uint8Array(bytesOf(source));
}

/** Why a server cannot be asked, as far as the browser says: it tells both alike. */
async function unanswered(base: string): Promise<NativeError> {
  const { origin } = self.location;
  // A name that other browsers do not know.
  const name = "loopback-network" as PermissionName;
  const asked = await self.navigator.permissions?.query({ name }).catch(() => undefined);
  return asked?.state === "denied"
    ? new NativeError("denied", `the browser keeps ${origin} from programs of this device, ${base} among them: \
allow it in the browser's settings for this site, and load the page again`)
    : new NativeError("no-server", `${base} does not answer this page: start \`holdfast serve\` there, and \
allow ${origin}; if the browser asks whether this site may reach apps on this device, allow that, too`);
}

/** A connection with one applet. */
class Socket {
  readonly #socket: WebSocket;
  readonly #calls = new Map<number, PendingCall>();
  /** In the order in which they are made. */
  readonly #waiting: Turn[] = [];
  /** Told by the server when it took the token. */
  #limits!: ServerLimits;
  #pendingBytes = 0;
  #lastCall = 0;
  /** What is waited for apart from calls. */
  #opening: { resolve: (message: Uint8Array<ArrayBuffer>) => void; reject: (error: unknown) => void } | undefined;
  #closed: (() => void) | undefined;
  /** Called when no call waits any more. */
  #drained: (() => void) | undefined;
  #closing: Promise<void> | undefined;
  #end: unknown;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#take(new Uint8Array(data as ArrayBuffer));
    socket.onclose = ({ code, reason }) => {
      const words = reason || `the connection to the server ended (${code})`;
      this.#finish(this.#limits ? new AppletEndedError(words) : new NativeError("refused", words));
    };
  }

  static async connect(server: URL): Promise<Socket> {
    const base = `${server.protocol}//${server.host}`;
    const answer = await fetch(`${base}/holdfast/token`, { method: "POST", credentials: "omit" })
      .catch(() => undefined);
    if (!answer) {
      throw await unanswered(base);
    }
    const text = (await answer.text()).trim();
    if (!answer.ok) throw new NativeError(answer.status === 403 ? "denied" : "no-server", text);
    const token = Uint8Array.from(text.match(/../g) ?? [], (digits) => parseInt(digits, 16));
    const raw = new WebSocket(`${base.replace(/^http/, "ws")}/holdfast`);
    raw.binaryType = "arraybuffer";
    await new Promise<void>((opened, failed) => {
      raw.onopen = () => opened();
      raw.onerror = raw.onclose = () => {
        failed(new NativeError("no-server", `${base} refuses a connection of this page`));
      };
    });
    raw.onerror = null;
    const socket = new Socket(raw);
    const welcome = socket.#answer();
    raw.send(new Uint8Array([To.hello, VERSION, ...token]));
    socket.#limits = JSON.parse(decoder.decode((await welcome).subarray(2)));
    return socket;
  }

  get partsAhead(): number {
    return this.#limits.partsAhead;
  }

  async start(body: object, bytes: Uint8Array<ArrayBuffer>): Promise<{ functions: string[]; notes: string[] }> {
    if (bytes.length > this.#limits.appletBytes) {
      throw new NativeError("too-large", `an applet has at most ${this.#limits.appletBytes} bytes`);
    }
    let answer = this.#answer();
    this.#send(To.start, [APPLET], encoder.encode(JSON.stringify(body)));
    let message = await answer;
    if (message[0] === From.need) {
      answer = this.#answer();
      for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
        this.#send(To.upload, [APPLET], bytes.subarray(at, at + CHUNK_BYTES));
      }
      this.#send(To.uploaded, [APPLET]);
      message = await answer;
    }
    return JSON.parse(decoder.decode(message.subarray(5)));
  }

  /** Makes a call when those before it were made and there is room for it; returns its number then. */
  async call(
    name: string,
    bytes: Uint8Array,
    { signal }: NativeCallOptions,
    streams: boolean,
    ends: Omit<PendingCall, "pieces" | "bytes" | "isStream">,
  ): Promise<number> {
    const function_ = encoder.encode(name);
    const call = this.#lastCall = this.#lastCall % 0xffff_ffff + 1;
    const size = HEADER_BYTES + 1 + function_.length + bytes.length;
    if (function_.length > 255 || size > this.#limits.frameBytes) {
      const max = this.#limits.frameBytes;
      ends.failed(new NativeError("too-large", `a call has at most ${max} bytes; make several calls`));
      return call;
    }
    if (this.#end || this.#closing || signal?.aborted) {
      ends.failed(this.#end ?? signal?.reason ?? new AppletEndedError("the applet was closed"));
      return call;
    }
    await new Promise<void>((settled) => {
      const aborted = () => {
        const at = this.#waiting.indexOf(turn);
        if (at < 0) return this.cancel(call);
        this.#waiting.splice(at, 1);
        turn.fail(signal!.reason);
        this.#admit();
      };
      const over = <T>(end: (value: T) => void) => (value: T) => {
        signal?.removeEventListener("abort", aborted);
        end(value);
      };
      const failed = over((error: unknown) => ends.failed(signal?.aborted ? signal.reason : error));
      const turn: Turn = {
        bytes: bytes.length,
        isStream: streams,
        make: () => {
          this.#pendingBytes += bytes.length;
          const { part, done } = ends;
          this.#calls.set(call, { bytes: bytes.length, isStream: streams, pieces: [], part, done: over(done), failed });
          const head = new Uint8Array([streams ? STREAMS : 0, function_.length, ...function_]);
          this.#send(To.call, [APPLET, call], head, bytes);
          settled();
        },
        fail: (error) => {
          failed(error);
          settled();
        },
      };
      signal?.addEventListener("abort", aborted, { once: true });
      this.#waiting.push(turn);
      this.#admit();
    });
    return call;
  }

  cancel(call: number): void {
    if (this.#calls.has(call)) this.#send(To.cancel, [APPLET, call]);
  }

  more(call: number, parts: number): void {
    if (this.#calls.has(call)) this.#send(To.more, [APPLET, call, parts]);
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      if (!this.#end) {
        // Nobody may read their parts any more.
        this.#calls.forEach(({ isStream }, call) => { if (isStream) this.cancel(call); });
        const error = new AppletEndedError("the applet was closed");
        for (const turn of this.#waiting.filter(({ isStream }) => isStream)) {
          this.#waiting.splice(this.#waiting.indexOf(turn), 1);
          turn.fail(error);
        }
        this.#admit();
        if (this.#waiting.length > 0) await new Promise<void>((drained) => { this.#drained = drained; });
      }
      if (!this.#end) {
        const closed = new Promise<void>((resolve) => { this.#closed = resolve; });
        this.#send(To.close, [APPLET]);
        await closed;
      }
      this.#socket.close();
    })();
    return this.#closing;
  }

  drop(): void {
    this.#socket.close();
  }

  #hasRoom(bytes: number): boolean {
    const { pendingCalls, pendingBytes } = this.#limits;
    return this.#calls.size === 0
      || this.#calls.size < pendingCalls && this.#pendingBytes + bytes <= pendingBytes;
  }

  #answer(): Promise<Uint8Array<ArrayBuffer>> {
    return new Promise((resolve, reject) => {
      if (this.#end) reject(this.#end);
      this.#opening = { resolve, reject };
    });
  }

  #send(kind: number, numbers: number[], ...rest: Uint8Array[]): void {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    const size = rest.reduce((sum, bytes) => sum + bytes.length, 1 + 4 * numbers.length);
    const message = new Uint8Array(size);
    const view = new DataView(message.buffer);
    message[0] = kind;
    numbers.forEach((number, at) => view.setUint32(1 + 4 * at, number, true));
    let at = 1 + 4 * numbers.length;
    for (const bytes of rest) {
      message.set(bytes, at);
      at += bytes.length;
    }
    this.#socket.send(message);
  }

  #take(message: Uint8Array<ArrayBuffer>): void {
    const view = new DataView(message.buffer);
    switch (message[0]) {
      case From.part:
      case From.done: return this.#result(message, view);
      case From.failed: {
        const call = view.getUint32(5, true);
        const words = decoder.decode(message.subarray(14));
        this.#over(call)?.failed(errorOf(message[9]!, view.getInt32(10, true), words));
        return;
      }
      case From.ended: {
        const kind = message[5]!;
        const words = decoder.decode(message.subarray(6));
        this.#finish(kind === 0
          ? new AppletEndedError("the applet was closed")
          : errorOf(kind, 0, words || "the applet ended"));
        return this.#socket.close();
      }
      default: return this.#opening?.resolve(message);
    }
  }

  #result(message: Uint8Array<ArrayBuffer>, view: DataView): void {
    const number = view.getUint32(5, true);
    const call = this.#calls.get(number);
    if (!call) return;
    call.pieces.push(message.subarray(HEADER_BYTES));
    if ((message[9]! & CONTINUES) !== 0) return;
    const bytes = joined(call.pieces);
    call.pieces = [];
    if (message[0] === From.part) return call.part(bytes);
    this.#over(number);
    call.done(bytes);
  }

  /** Takes a call that is done out, and lets those that wait have its room. */
  #over(number: number): PendingCall | undefined {
    const call = this.#calls.get(number);
    if (call) {
      this.#calls.delete(number);
      this.#pendingBytes -= call.bytes;
      this.#admit();
    }
    return call;
  }

  /** Makes calls that wait, in their order, for as long as there is room. */
  #admit(): void {
    while (this.#waiting.length > 0 && this.#hasRoom(this.#waiting[0]!.bytes)) this.#waiting.shift()!.make();
    if (this.#waiting.length === 0) this.#drained?.();
  }

  /** The applet or the connection is gone. */
  #finish(error: unknown): void {
    this.#end ??= error;
    const waiting = this.#waiting.splice(0);
    for (const number of [...this.#calls.keys()]) this.#over(number)?.failed(this.#end);
    waiting.forEach((turn) => turn.fail(this.#end));
    this.#drained?.();
    this.#opening?.reject(this.#end);
    this.#closed?.();
  }
}

function joined(pieces: Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  if (pieces.length === 1) return pieces[0]!;
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

const FAILURES: readonly NativeFailure[] = [
  "other", "other", "unknown-function", "too-large", "other", "other", "other", "denied", "refused", "other",
  "wrong-hash", "not-an-applet", "other",
];

/** The error for a kind of the protocol. */
function errorOf(kind: number, code: number, words: string): Error {
  switch (kind) {
    case 1: return new CallError(code, words);
    case 4: return new DOMException(words, "AbortError");
    case 5: return new AppletEndedError(words);
    case 6: return new LockedError(words);
    case 9: return new QuotaError(words);
    default: return new NativeError(FAILURES[kind] ?? "other", words);
  }
}
