/** The errors of typed access to a heap, beside those of `errors.ts`. */

/** The heap has no room, and may not grow beyond its size; nothing was changed. */
export class HeapFullError extends Error {
  override name = "HeapFullError";
}

/** The object was freed, taken back by a rollback or replaced, or its heap was closed. */
export class StaleReferenceError extends Error {
  override name = "StaleReferenceError";
}

/** There is no heap, root or document of that name. */
export class NotFoundError extends Error {
  override name = "NotFoundError";
}

/** The heap was opened for reading. */
export class ReadOnlyError extends Error {
  override name = "ReadOnlyError";
}

/** Not possible inside a transaction, or the transaction was rolled back. */
export class TransactionError extends Error {
  override name = "TransactionError";
}

/** A page or a query passes a limit; nothing was stored. */
export class LimitError extends Error {
  override name = "LimitError";
}

/** The selector is invalid: which one, and at which character, from 1. */
export class SelectorError extends Error {
  override name = "SelectorError";
  constructor(message: string, readonly selector: string, readonly column: number) {
    super(message);
  }
}
