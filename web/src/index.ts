export * from "./errors.js";
export * from "./page-store.js";
