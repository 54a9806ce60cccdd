// A page whose worker runs functions of a test.
import { tab } from "./browser.mjs";

/**
 * A new page, and `run`: has a function run in its worker, with the package, an object that stays,
 * and a value of JSON. What it throws is thrown here, with its name.
 */
export async function heapTab() {
  const { page, grant, step } = await tab();
  await page.evaluate(() => new Promise((done, failed) => {
    globalThis.views = new Worker("/test/views-worker.mjs", { type: "module" });
    views.onmessage = done;
    views.onerror = () => failed(new Error("the worker did not start"));
  }));
  const run = async (work, given = null) => {
    const told = await page.evaluate((message) => new Promise((done) => {
      views.onmessage = ({ data }) => done(data);
      views.postMessage(message);
    }), { code: String(work), given });
    if (told.error === undefined) return told.ok;
    throw Object.assign(new Error(`${told.message}\n${told.stack}`), { name: told.error });
  };
  return { page, grant, step, run };
}
