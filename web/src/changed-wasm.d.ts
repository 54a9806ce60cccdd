/** The build makes it from `changed.wat`. */
export const CHANGED: Uint8Array<ArrayBuffer>;
