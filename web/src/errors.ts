/** Another handle of this heap is open: in this tab or in another. */
export class LockedError extends Error {
  override name = "LockedError";
}

/** The stored bytes are damaged; nothing of the heap was changed. */
export class CorruptError extends Error {
  override name = "CorruptError";
}

/** The applet needs something that a page does not offer. */
export class UnsupportedError extends Error {
  override name = "UnsupportedError";
}

/** The browser grants no more storage; the last commit stands. */
export class QuotaError extends Error {
  override name = "QuotaError";
}
