/**
 * An HTML document that lies in a heap: parsed once, and from then on opened without parsing and
 * asked where it lies. The same documents as those of `holdfast page keep` and `holdfast.Document`.
 *
 * Invariants: elements are numbers of nodes. One of a document that was replaced is a
 * `StaleReferenceError`; what is damaged is a `CorruptError`, and never half an answer.
 */
import { CORE, type HeapCore } from "./heap-core.js";
import { NotFoundError, StaleReferenceError } from "./heap-errors.js";
import { putName } from "./heap-module.js";
import { shown } from "./kinds.js";
import { names, type PersistentHeap } from "./persistent-heap.js";

/** The page of a document: its HTML, or what gives it. */
export type Html = string | Uint8Array | (() => string | Uint8Array);

export interface KeptDocumentOptions {
  /** The page, which is parsed if there is no document of that name. */
  readonly html?: Html;
}

/** The number of the node that is the document. */
const DOCUMENT = 1;
const HTML_NAMESPACE = "http://www.w3.org/1999/xhtml";
/** Ways of a selector, and parts of a node: those of `web/heap-module/src/exports.rs`. */
const ALL = 0, FIRST = 1, CLOSEST = 2, MATCHES = 3;
const NAME = 0, TEXT = 1, OUTER = 2, INNER = 3, NAMESPACE = 4;

/** The property of a node with its document. */
const SOURCE: unique symbol = Symbol("source");

/** A document and its edition: what elements share. */
class Source {
  readonly #edition: number;
  #epoch: number;

  constructor(
    readonly core: HeapCore, readonly name: string, readonly handle: number, readonly at: number,
  ) {
    this.#edition = core.editions.get(name) ?? 0;
    this.#epoch = core.epoch;
  }

  /** Looks whether it is still there; its handle. */
  get(): number {
    const { core, name } = this;
    core.check();
    if ((core.editions.get(name) ?? 0) !== this.#edition) this.#stale();
    if (this.#epoch !== core.epoch) {
      const found = core.module.call("root_find", putName(core.module, name));
      if (found === 0 || core.module.result(0) !== this.at) this.#stale();
      this.#epoch = core.epoch;
    }
    return this.handle;
  }

  #stale(): never {
    throw new StaleReferenceError(`the document ${this.name} was replaced or removed; open it \
again`);
  }

  text(node: number, part: number): string {
    const { module } = this.core;
    module.call("document_text", this.get(), node, part);
    return module.text(module.result(0), module.result(1));
  }

  select(node: number, selector: string, way: number): KeptElement[] {
    const { module } = this.core;
    if (typeof selector !== "string") {
      throw new TypeError(`a selector is a string, and not ${shown(selector)}`);
    }
    const handle = this.get();
    const length = module.putText(selector);
    let status: number;
    try {
      status = module.exports.document_select(handle, node, length, way);
    } catch (error) {
      throw module.trapped(error);
    }
    if (status < 0) module.fail(status, selector);
    return this.elements(status);
  }

  elements(count: number): KeptElement[] {
    if (count === 0) return [];
    const { module } = this.core;
    const numbers = module.words(module.result(0), count);
    const elements = new Array<KeptElement>(count);
    for (let index = 0; index < count; index++) {
      elements[index] = new KeptElement(this, numbers[index]!);
    }
    return elements;
  }
}

/** What a document and its elements are asked. */
class KeptNode {
  readonly [SOURCE]: Source;
  /** The number of the node, good until the document is replaced. */
  readonly node: number;

  /** Only documents make these. */
  constructor(source: Source, node: number) {
    [this[SOURCE], this.node] = [source, node];
  }

  /** The elements below it that match, in document order. Throws a `SelectorError`. */
  querySelectorAll(selector: string): KeptElement[] {
    return this[SOURCE].select(this.node, selector, ALL);
  }

  /** The first of these. */
  querySelector(selector: string): KeptElement | null {
    return this[SOURCE].select(this.node, selector, FIRST)[0] ?? null;
  }

  /** The elements in it. */
  get children(): KeptElement[] {
    const source = this[SOURCE];
    return source.elements(source.core.module.call("document_children", source.get(), this.node));
  }

  /** All text in it. */
  get textContent(): string {
    return this[SOURCE].text(this.node, TEXT);
  }
}

/** An element of a kept document. */
export class KeptElement extends KeptNode {
  /** Its name, in capitals for an element of HTML. */
  get tagName(): string {
    const name = this.localName;
    return this.namespaceURI === HTML_NAMESPACE ? name.toUpperCase() : name;
  }

  get localName(): string {
    return this[SOURCE].text(this.node, NAME);
  }

  get namespaceURI(): string {
    return this[SOURCE].text(this.node, NAMESPACE);
  }

  /** The value of an attribute. */
  getAttribute(name: string): string | null {
    const source = this[SOURCE], { module } = source.core;
    const handle = source.get();
    const ask = (wanted: string) =>
      module.call("document_attribute", handle, this.node, module.putText(wanted)) === 1;
    const lower = name.toLowerCase();
    // Those of HTML are in small letters, and those of SVG as the page writes them.
    const isThere = ask(name)
      || lower !== name && this.namespaceURI === HTML_NAMESPACE && ask(lower);
    return isThere ? module.text(module.result(0), module.result(1)) : null;
  }

  hasAttribute(name: string): boolean {
    return this.getAttribute(name) !== null;
  }

  /** The names of its attributes, in their order. */
  getAttributeNames(): string[] {
    const source = this[SOURCE], { module } = source.core;
    module.call("document_attributes", source.get(), this.node);
    return module.text(module.result(0), module.result(1)).split("\0").slice(0, -1);
  }

  get id(): string {
    return this.getAttribute("id") ?? "";
  }

  get className(): string {
    return this.getAttribute("class") ?? "";
  }

  /** The element that it is in. */
  get parent(): KeptElement | null {
    const source = this[SOURCE];
    const count = source.core.module.call("document_parent", source.get(), this.node);
    return source.elements(count)[0] ?? null;
  }

  /** Whether it matches. Throws a `SelectorError`. */
  matches(selector: string): boolean {
    return this[SOURCE].select(this.node, selector, MATCHES).length > 0;
  }

  /** It, or the nearest element above it, that matches. Throws a `SelectorError`. */
  closest(selector: string): KeptElement | null {
    return this[SOURCE].select(this.node, selector, CLOSEST)[0] ?? null;
  }

  /** Its HTML. */
  get outerHTML(): string {
    return this[SOURCE].text(this.node, OUTER);
  }

  /** The HTML of what it holds. */
  get innerHTML(): string {
    return this[SOURCE].text(this.node, INNER);
  }
}

/** A kept document. */
export class KeptDocument extends KeptNode {
  /**
   * Opens the document of this name; where there is none, `html` is parsed. Throws a
   * `NotFoundError` without one, a `LayoutMismatchError` where something else has the name, a
   * `CorruptError` for a damaged document, a `LimitError` for a page that passes one,
   * `HeapFullError`.
   */
  static open(
    heap: PersistentHeap, name: string, { html }: KeptDocumentOptions = {},
  ): KeptDocument {
    const core = heap[CORE];
    core.check();
    const { module } = core;
    if (module.call("document_open", putName(module, name)) === 0) {
      if (html === undefined) {
        throw new NotFoundError(`the heap has no document ${name}; give its page: { html }`);
      }
      return KeptDocument.parse(heap, name, html);
    }
    const handle = module.result(0);
    module.call("root_find", putName(module, name));
    return new KeptDocument(new Source(core, name, handle, module.result(0)), DOCUMENT);
  }

  /** Parses a page, and keeps it in the place of the document of this name. Throws as `open`. */
  static parse(heap: PersistentHeap, name: string, html: Html): KeptDocument {
    const core = heap[CORE];
    core.checkWritable();
    const { module } = core;
    const page = typeof html === "function" ? html() : html;
    const isText = typeof page === "string";
    if (!isText && !(page instanceof Uint8Array)) {
      throw new TypeError(`a page is a string or a Uint8Array of UTF-8, and not ${shown(page)}`);
    }
    // Half a pair of UTF-16 is no text: a page may have it all the same. Putting the name into the
    // input may have memory grow.
    const bytes = isText ? new TextEncoder().encode(page) : module.lasting(page);
    const length = putName(module, name);
    module.call("document_parse", length, module.putBytes(bytes, length));
    noteReplaced(core, name);
    return KeptDocument.open(heap, name);
  }

  /** The names of the documents of a heap, sorted. */
  static names(heap: PersistentHeap): string[] {
    heap[CORE].check();
    return names(heap[CORE].module, "document_names");
  }

  /** Its name in the heap. */
  get name(): string {
    return this[SOURCE].name;
  }

  /** The element `html`. */
  get documentElement(): KeptElement | null {
    return this.children[0] ?? null;
  }

  /** Its HTML. */
  get outerHTML(): string {
    return this[SOURCE].text(DOCUMENT, OUTER);
  }

  /** Removes it from its heap. */
  remove(): void {
    const { core, name } = this[SOURCE];
    core.checkWritable();
    this[SOURCE].get();
    core.module.call("document_remove", putName(core.module, name));
    noteReplaced(core, name);
  }
}

/** Elements that were taken before are of another document. */
function noteReplaced(core: HeapCore, name: string): void {
  core.editions.set(name, (core.editions.get(name) ?? 0) + 1);
  if (core.depth > 0) core.replaced.add(name);
}
