/** The build makes it from `page-sum.wat`. */
export const PAGE_SUM: Uint8Array<ArrayBuffer>;
