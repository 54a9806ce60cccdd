// Runs functions of a test in a dedicated worker, with the package and what they keep there.
import * as holdfast from "/dist/index.js";

const kept = {};
const AsyncFunction = (async () => {}).constructor;

onmessage = async ({ data: { code, given } }) => {
  try {
    const work = new AsyncFunction("holdfast", "kept", "given",
      `return (${code})(holdfast, kept, given)`);
    postMessage({ ok: (await work(holdfast, kept, given)) ?? null });
  } catch (error) {
    const { name, message, stack } = error;
    postMessage({ error: name, message, stack });
  }
};
postMessage({ ok: "ready" });
