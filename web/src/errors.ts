/** Another handle of this heap is open: in this tab or in another. */
export class LockedError extends Error {
  override name = "LockedError";
}

/** The stored bytes are damaged; nothing of the heap was changed. */
export class CorruptError extends Error {
  override name = "CorruptError";
}

/** The heap's pointers refer to a place that this page cannot give it. */
export class LayoutMismatchError extends Error {
  override name = "LayoutMismatchError";
}

/** Something is stored under that name already; nothing of it was changed. */
export class ExistsError extends Error {
  override name = "ExistsError";
}

/** The applet needs something that a page does not offer. */
export class UnsupportedError extends Error {
  override name = "UnsupportedError";
}

/** The browser grants no more storage; the last commit stands. */
export class QuotaError extends Error {
  override name = "QuotaError";
}
