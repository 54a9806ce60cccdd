// One browser and one server for the tests of a file; each test begins with an empty browser.
import { after, before, beforeEach } from "node:test";
import { Browser, serve, stepper } from "./browsers.mjs";

export { APPLETS, HOLDFAST } from "./browsers.mjs";
/** How often a test kills the browser. */
export const KILLS = Number(process.env.HOLDFAST_WEB_KILLS ?? 14);

const chromium = new Browser();
let browser = chromium, server;

before(async () => { server = await serve(); });
after(async () => {
  await browser.remove();
  server.close();
});
beforeEach(async () => {
  await browser.remove();
  browser = chromium;
});

/** Has this test open its tabs in another browser. */
export const use = (other) => { browser = other; };
export const kill = () => browser.kill();

/** A new page, and a function that runs one step in its worker. */
export async function tab() {
  const page = await browser.page();
  await page.goto(`${server.origin}/`);
  const step = await stepper(page, "/test/worker.mjs");
  /** Has the origin get so many bytes of storage. */
  const grant = async (quotaSize) => {
    const session = await page.createCDPSession();
    await session.send("Storage.overrideQuotaForOrigin", { origin: server.origin, quotaSize });
  };
  return { page, step, grant };
}
