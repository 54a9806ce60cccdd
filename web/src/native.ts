/**
 * Applets that run on this machine, outside of the browser: `holdfast serve` runs them in its jail,
 * and this module speaks with it (`docs/serve-protocol.md`). It works in a page and in a worker, and
 * needs no COOP or COEP headers.
 *
 * Invariants: an applet is named by the SHA-256 of its bytes, which are uploaded only where the
 * server lacks them, and never where they have another one than the caller asked for. An opening has an
 * end, whatever is at the server's port. A call has exactly one end. No more calls and bytes are on their
 * way than the server takes, and no more parts of a stream than are read.
 */
import { AppletEndedError, CallError, LockedError, QuotaError } from "./errors.js";
import { bytesOf, type Input } from "./input.js";

const VERSION = 1;
const APPLET = 1;
const CHUNK_BYTES = 1 << 20;
const HEADER_BYTES = 10;
const STREAMS = 1;
const CONTINUES = 1;
/** The server asks its user for a minute at most, and the browser may ask before. */
const OPEN_MS = 120_000;
/** A longer time has timers end at once. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;
const To = { hello: 1, start: 2, upload: 3, uploaded: 4, call: 5, cancel: 6, more: 7, close: 8 } as const;
const From = {
  welcome: 0x81, need: 0x82, started: 0x83, part: 0x84, done: 0x85, failed: 0x86, ended: 0x87,
} as const;

/** How a call failed whose applet is gone, by `docs/serve-protocol.md`. */
const DIED = 5;

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
  /**
   * The SHA-256 that the program must have, as 64 hexadecimal digits. Without it the applet is whatever
   * the address gives. With it a program at an address is fetched only where the server lacks it.
   */
  readonly sha256?: string;
  /** Ends the opening, and not the applet that was opened. */
  readonly signal?: AbortSignal;
  /**
   * Milliseconds that the server may take for each answer of the opening, and the program for its
   * download, which is cut then, too; 120,000 unless said.
   */
  readonly openTimeoutMs?: number;
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
   * Starts an applet: a program for this machine, or WebAssembly. A failure is a `NativeError` (with
   * `wrong-hash` nothing of the program was sent), a `LockedError` while a heap is open elsewhere, a
   * `QuotaError` where there is no room, an `AppletEndedError` when the applet ends before it serves,
   * or the reason of the signal.
   */
  static async open(
    source: string | URL | Blob | BufferSource,
    options: NativeOptions = {},
  ): Promise<NativeApplet> {
    const { signal, openTimeoutMs = OPEN_MS } = options;
    // Only without one it is not checked: `null` is a mistake of the caller.
    const pinned = options.sha256 === undefined ? undefined : String(options.sha256).toLowerCase();
    if (pinned !== undefined && !/^[0-9a-f]{64}$/.test(pinned)) {
      throw new RangeError("sha256 must have 64 hexadecimal digits");
    }
    if (!(openTimeoutMs > 0)) throw new RangeError("openTimeoutMs must be greater than zero");
    signal?.throwIfAborted();
    const heaps = (options.heaps ?? []).map((heap) => typeof heap === "string" ? { heap } : heap);
    const body = { heaps, limits: options.limits ?? {} };
    const server = new Server(new URL(options.server ?? self.location.origin), openTimeoutMs, signal);
    const isAddress = typeof source === "string" || source instanceof URL;
    if (pinned !== undefined && isAddress) {
      const applet = await NativeApplet.#start(server, { ...body, sha256: pinned }, undefined);
      if (applet !== undefined) return applet;
    }
    // The program is often at the server's port, and that may be anything's.
    const load = (given: AbortSignal) => programOf(source, server, given);
    const bytes = await server.answers(load, isAddress ? `${source} was not loaded within ${openTimeoutMs} ms: see \
whether its server answers, or give openTimeoutMs more` : undefined);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const sha256 = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    if (pinned !== undefined && sha256 !== pinned) {
      throw new NativeError("wrong-hash", `${isAddress ? source : "the program"} has SHA-256 ${sha256}, not \
${pinned} as it should; nothing of it was sent`);
    }
    return (await NativeApplet.#start(server, { ...body, sha256 }, bytes))!;
  }

  /** Starts an applet; `undefined` where the server lacks its program, and none is given. */
  static async #start(
    server: Server, body: object, bytes: Uint8Array<ArrayBuffer> | undefined,
  ): Promise<NativeApplet | undefined> {
    const socket = await Socket.connect(server);
    try {
      const started = await socket.start(server, body, bytes);
      if (started !== undefined) return new NativeApplet(socket, started);
      // The applet's place is free when this has ended, in whatever way: the program may be long on its way here.
      await server.answers(() => socket.close().catch(() => {}));
      return undefined;
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

  /**
   * Ends the applet behind the calls that wait, and closes its heaps. Open streams are cancelled. Rejects where
   * the server did not say that the heaps were closed: with its failure, or an `AppletEndedError` where the
   * applet or the connection died meanwhile. An applet that had ended before is closed, as its calls were told.
   */
  async close(): Promise<void> {
    await this.#socket.close();
  }
}

async function programOf(
  source: string | URL | Blob | BufferSource, server: Server, signal: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  if (source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  if (typeof source === "string" || source instanceof URL) {
    const answer = await fetch(source, { signal }).catch(() => undefined);
    if (!answer) {
      // Throws what it does for what is no address.
      const { origin } = new URL(new Request(source).url);
      throw origin === server.base ? await unanswered(origin) : new NativeError("no-server", `${source} was not \
loaded: its server does not answer, or does not let pages of ${self.location.origin} read it`);
    }
    if (!answer.ok) throw new NativeError("refused", `${source}: the server answers ${answer.status}`);
    const bytes = await answer.arrayBuffer().catch(() => undefined);
    if (!bytes) throw new NativeError("no-server", `${source} broke off while it was loaded; try again`);
    return new Uint8Array(bytes);
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

/** Where native applets are asked for, and how long it is waited for. */
class Server {
  readonly base: string;
  readonly #timeoutMs: number;
  readonly #signal: AbortSignal | undefined;

  constructor({ protocol, host }: URL, timeoutMs: number, signal: AbortSignal | undefined) {
    this.base = `${protocol}//${host}`;
    this.#timeoutMs = timeoutMs;
    this.#signal = signal;
  }

  /**
   * What the server answers, unless the caller gives up or that takes too long, of which `late` are the
   * words; `ask` gets a signal that is aborted then.
   */
  async answers<T>(ask: (signal: AbortSignal) => Promise<T>, late?: string): Promise<T> {
    const [given, ms] = [this.#signal, this.#timeoutMs];
    given?.throwIfAborted();
    const control = new AbortController();
    const aborted = () => control.abort(given!.reason);
    given?.addEventListener("abort", aborted, { once: true });
    const timer = setTimeout(() => control.abort(new NativeError("no-server", late ?? `${this.base} did not answer \
within ${ms} ms: see what else has this port, start \`holdfast serve\` anew, and answer what the browser and the \
server ask`)), Math.min(ms, TIMEOUT_MS_MAX));
    try {
      return await new Promise<T>((resolve, reject) => {
        control.signal.addEventListener("abort", () => reject(control.signal.reason), { once: true });
        ask(control.signal).then(resolve, reject);
      });
    } finally {
      clearTimeout(timer);
      given?.removeEventListener("abort", aborted);
    }
  }
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
  /** Whether the server said that the heaps were closed. */
  #isClosed = false;
  /** Whether a call was told that the applet is gone; its end is told when its heaps are closed. */
  #isDead = false;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#take(new Uint8Array(data as ArrayBuffer));
    socket.onclose = ({ code, reason }) => {
      const words = reason || `the connection to the server ended (${code})`;
      this.#finish(this.#limits ? new AppletEndedError(words) : new NativeError("refused", words));
    };
  }

  static async connect(server: Server): Promise<Socket> {
    const { base } = server;
    const token = await server.answers(async (signal) => {
      const answer = await fetch(`${base}/holdfast/token`, { method: "POST", credentials: "omit", signal })
        .catch(() => undefined);
      if (!answer) {
        throw await unanswered(base);
      }
      const text = (await answer.text()).trim();
      if (!answer.ok) throw new NativeError(answer.status === 403 ? "denied" : "no-server", text);
      return Uint8Array.from(text.match(/../g) ?? [], (digits) => parseInt(digits, 16));
    });
    const raw = new WebSocket(`${base.replace(/^http/, "ws")}/holdfast`);
    raw.binaryType = "arraybuffer";
    try {
      await server.answers(() => new Promise<void>((opened, failed) => {
        raw.onopen = () => opened();
        raw.onerror = raw.onclose = () => {
          failed(new NativeError("no-server", `${base} refuses a connection of this page`));
        };
      }));
      raw.onerror = null;
      const socket = new Socket(raw);
      const welcome = await server.answers(() => {
        const answer = socket.#answer();
        raw.send(new Uint8Array([To.hello, VERSION, ...token]));
        return answer;
      });
      socket.#limits = JSON.parse(decoder.decode(welcome.subarray(2)));
      return socket;
    } catch (error) {
      raw.close();
      throw error;
    }
  }

  get partsAhead(): number {
    return this.#limits.partsAhead;
  }

  /** Starts the applet; `undefined` where its program is needed, and none is given. */
  async start(
    server: Server, body: object, bytes: Uint8Array<ArrayBuffer> | undefined,
  ): Promise<{ functions: string[]; notes: string[] } | undefined> {
    if (bytes !== undefined && bytes.length > this.#limits.appletBytes) {
      throw new NativeError("too-large", `an applet has at most ${this.#limits.appletBytes} bytes`);
    }
    let message = await server.answers(() => {
      const answer = this.#answer();
      this.#send(To.start, [APPLET], encoder.encode(JSON.stringify(body)));
      return answer;
    });
    if (message[0] === From.need) {
      if (bytes === undefined) return undefined;
      message = await server.answers(() => {
        const answer = this.#answer();
        for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
          this.#send(To.upload, [APPLET], bytes.subarray(at, at + CHUNK_BYTES));
        }
        this.#send(To.uploaded, [APPLET]);
        return answer;
      });
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
    let input = bytes;
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
          this.#pendingBytes += input.length;
          const { part, done } = ends;
          this.#calls.set(call, { bytes: input.length, isStream: streams, pieces: [], part, done: over(done), failed });
          const head = new Uint8Array([streams ? STREAMS : 0, function_.length, ...function_]);
          this.#send(To.call, [APPLET, call], head, input);
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
      // The caller may go on with its bytes, as when the call is made at once.
      if (this.#waiting.includes(turn)) input = bytes.slice();
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
      const hadEnded = this.#end !== undefined || this.#isDead;
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
      if (!hadEnded && !this.#isClosed) throw this.#end;
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
        if (message[9] === DIED) this.#isDead = true;
        this.#over(call)?.failed(errorOf(message[9]!, view.getInt32(10, true), words));
        return;
      }
      case From.ended: {
        const kind = message[5]!;
        const words = decoder.decode(message.subarray(6));
        this.#isClosed = kind === 0;
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
