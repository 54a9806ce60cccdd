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

/** The heap has no snapshot of that name. */
export class NoSnapshotError extends Error {
  override name = "NoSnapshotError";
}

/** The applet needs something that a page or this browser does not offer. */
export class UnsupportedError extends Error {
  override name = "UnsupportedError";
}

/** The browser gives this page no files: in a private window, or where the site may store nothing. */
export class FilesRefusedError extends UnsupportedError {}

/** The browser grants no more storage; the last commit stands. */
export class QuotaError extends Error {
  override name = "QuotaError";
}

/** The applet's function failed: its code, which is not 0, and its words. */
export class CallError extends Error {
  override name = "CallError";
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

/** The applet returned or trapped (then `cause` is the trap); what it had committed stands. */
export class AppletEndedError extends Error {
  override name = "AppletEndedError";
}

/** The storage of the site was cleared under an open heap: what was committed is gone. */
export class StorageLostError extends Error {
  override name = "StorageLostError";
}

/**
 * The browser could not bring a commit to the disk (`cause` is what it said): whether that commit is
 * stored is not known, those before it are. Close the heap and open it again. Of heaps in files, and of
 * their snapshots: one that was not brought there is none.
 */
export class StorageFailedError extends Error {
  override name = "StorageFailedError";
}

/** The tab that ran the applet is gone; whether the call was made is not known. */
export class OwnerLostError extends Error {
  override name = "OwnerLostError";
}
