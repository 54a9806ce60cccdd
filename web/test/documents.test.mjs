// HTML documents in heaps: parsed once, and asked the same as the browser asks its own.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { HOLDFAST } from "./browser.mjs";
import { heapTab } from "./views-tab.mjs";

const ROOT = new URL("../..", import.meta.url).pathname;
let folder, environment;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-documents-"));
  environment = {
    ...process.env, HOLDFAST_HOME: join(folder, "home"), HOLDFAST_POOL: join(folder, "pool"),
  };
});
after(() => rmSync(folder, { recursive: true, force: true }));

const holdfast = (...args) =>
  execFileSync(HOLDFAST, args, { env: environment, encoding: "utf8", timeout: 60_000 });

const PAGES = {
  report: readFileSync(join(ROOT, "trace/src/report/page/page.html"), "utf8"),
  reader: readFileSync(join(ROOT, "tests/documentation/reader/index.html"), "utf8"),
  broken: "<!doctype html><p class='a b'>one<p id=two class=b>two<b>bold<i>both</b>italic</i>"
    + "<table><tr><td colspan=2>cell<div>foster</table>text<a href='/x?a=1&amp;b'>link</a>"
    + "<template><p class=a>inert</p></template><textarea>\n<b>&lt;</textarea><img src=a alt=''>",
  quirks: "<div CLASS=A ID=Mixed><Custom-Element data-x='1'>ä ö ü 😀</Custom-Element></div>"
    + "<svg viewBox='0 0 1 1'><linearGradient id=g /><text xlink:href='#g'>svg</text></svg>"
    + "<math><mi>x</mi></math><select><option selected>1<option disabled>2</select><br/>",
  lists: "<!doctype html><title>lists</title>" + "<ul>" + Array.from({ length: 200 }, (_, index) =>
    `<li class="item n${index % 7}" data-i=${index}><span>${index}</span></li>`).join("") + "</ul>",
};
const SELECTORS = [
  "*", "p", ".a", ".b", ".a.b", "#two", "#Mixed", ".A", "p ~ p", "p + p > b", "body > *", "td div",
  "[href]", "[href^='/x']", "[data-i$='7']", "li:nth-child(3n+1)", "li:nth-last-child(2)",
  "li:first-child span", "li:not(.n3):not(.n4)", ":is(p, td) b", "ul > .n2 ~ .n3",
  "option:disabled", "div:has(custom-element)", "svg text", "linearGradient",
  "h1, h2, script, style", "a:link", ":root",
  "ul:not(:empty)", "template p", "span:only-child", "[class~=item][data-i='11']",
];

/** What both sides say of each element. */
const DESCRIBED = `(element) => [
  element.tagName, element.localName, element.namespaceURI, element.id, element.className?.baseVal ?? element.className, element.textContent, element.getAttributeNames(),
  element.getAttributeNames().map((name) => element.getAttribute(name)), element.outerHTML,
  element.innerHTML, (element.parent ?? element.parentElement)?.tagName ?? null,
  Array.from(element.children, (child) => child.tagName)]`;

// Guarantee: web/documents
test("a kept document answers selectors as the browser answers them", async () => {
  const { page, run } = await heapTab();
  for (const [name, html] of Object.entries(PAGES)) {
    const kept = await run(async ({ KeptDocument, PersistentHeap }, _kept, given) => {
      const heap = await PersistentHeap.open("pages");
      const document = KeptDocument.open(heap, given.name, { html: given.html });
      const describe = eval(given.described);
      const answers = given.selectors.map((selector) => {
        const first = document.querySelector(selector)?.node;
        const all = document.querySelectorAll(selector);
        if (first !== all[0]?.node) throw new Error(`the first of ${selector} is another one`);
        if (!all.every((element) => element.matches(selector))) {
          throw new Error(`${selector} differs`);
        }
        return all.map(describe);
      });
      await heap.close();
      return answers;
    }, { name, html, selectors: SELECTORS, described: DESCRIBED });
    const own = await page.evaluate(({ html, selectors, described }) => {
      const parsed = new DOMParser().parseFromString(html, "text/html");
      const describe = eval(described);
      return selectors.map((selector) => Array.from(parsed.querySelectorAll(selector), describe));
    }, { html, selectors: SELECTORS, described: DESCRIBED });
    SELECTORS.forEach((selector, index) => {
      assert.deepEqual(kept[index], own[index], `${name}: ${selector}`);
    });
    assert.ok(own.flat().length > 10, name);
  }
});

// Guarantee: web/documents
test("a document is opened after a reload without its page, and replaced as a whole", async () => {
  const first = await heapTab();
  await first.run(async ({ KeptDocument, PersistentHeap }, _kept, html) => {
    const heap = await PersistentHeap.open("pages");
    KeptDocument.open(heap, "page", { html });
    heap.commit();
  }, PAGES.lists);
  await first.page.close();
  const told = await (await heapTab()).run(async ({ KeptDocument, PersistentHeap }) => {
    const heap = await PersistentHeap.open("pages", { wait: true });
    const failure = (work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch (error) {
        return error.name;
      }
    };
    let parsed = 0;
    const document = KeptDocument.open(heap, "page", { html: () => { parsed += 1; return ""; } });
    const item = document.querySelector(".n3");
    const told = {
      names: KeptDocument.names(heap), parsed, count: document.querySelectorAll("li").length,
      closest: item.closest("ul").children.length, inner: item.innerHTML,
      scoped: document.querySelector("ul").querySelectorAll(":scope > .n6 > span").length,
      missing: failure(() => KeptDocument.open(heap, "other")),
    };
    failure(() => heap.transaction(() => {
      KeptDocument.parse(heap, "page", "<p>undone");
      throw new Error("undone");
    }));
    const again = KeptDocument.open(heap, "page");
    told.undone = again.querySelectorAll("li").length;
    const old = again.querySelector("li");
    KeptDocument.parse(heap, "page", "<p>another");
    told.stale = [failure(() => old.textContent), failure(() => again.querySelector("p"))];
    told.another = KeptDocument.open(heap, "page").textContent;
    KeptDocument.open(heap, "page").remove();
    told.removed = KeptDocument.names(heap);
    await heap.close();
    return told;
  });
  const stale = "StaleReferenceError";
  assert.deepEqual(told, {
    names: ["page"], parsed: 0, count: 200, closest: 200, inner: "<span>3</span>", scoped: 28,
    missing: "NotFoundError", undone: 200, stale: [stale, stale], another: "another", removed: [],
  });
});

// Guarantee: web/documents-refused
test("a bad selector says where, and a page that passes a limit is refused", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ KeptDocument, PersistentHeap, PersistentMap }) => {
    const heap = await PersistentHeap.open("refused");
    const failure = (work) => {
      try {
        return [`nothing failed: ${work()}`];
      } catch (error) {
        return [error.name, error.message, error.column, error.selector];
      }
    };
    PersistentMap.open(heap, "map");
    const document = KeptDocument.open(heap, "page", { html: "<p>one" });
    const deep = `${"<div>".repeat(2000)}<p>deep`;
    const nested = KeptDocument.open(heap, "deep", { html: deep });
    const told = {
      bracket: failure(() => document.querySelectorAll("p[")),
      empty: failure(() => document.querySelector("")),
      unknown: failure(() => document.querySelector("p:what")),
      number: failure(() => document.querySelector(7)),
      long: failure(() => document.querySelector("p ".repeat(20_000))),
      page: failure(() => KeptDocument.parse(heap, "page", 7)),
      deep: failure(() => KeptDocument.parse(heap, "page", "<div>".repeat(5000))),
      map: failure(() => KeptDocument.open(heap, "map")),
      stays: document.textContent,
      has: nested.querySelectorAll("div:has(p)").length,
    };
    await heap.close();
    return told;
  });
  assert.deepEqual(told.bracket,
    ["SelectorError", "invalid selector `p[`: unexpected input at character 3", 3, "p["]);
  assert.equal(told.empty[0], "SelectorError");
  assert.equal(told.unknown[0], "SelectorError");
  assert.match(told.unknown[1], /what/);
  assert.equal(told.number[0], "TypeError");
  assert.equal(told.long[0], "LimitError");
  assert.equal(told.page[0], "TypeError");
  assert.equal(told.deep[0], "LimitError");
  assert.equal(told.map[0], "LayoutMismatchError");
  assert.equal(told.stays, "one");
  assert.equal(told.has, 2000);
});

// Guarantee: web/documents-shared
test("a document of a native program is opened in a page, and the other way round", async () => {
  const native = join(folder, "native.html"), born = join(folder, "born.html");
  writeFileSync(native, "<ul><li><a href=/1>one</a><li><a href=/2>two</a></ul>");
  const links = (path) => execFileSync(join(dirname(HOLDFAST), "examples/links"), [path],
    { env: environment, encoding: "utf8", timeout: 60_000 });
  assert.match(links(native), /parsed: .*one -> \/1/s);
  holdfast("heap", "export", "pages", join(folder, "out"));
  const { run, step } = await heapTab();
  const base64 = readFileSync(join(folder, "out")).toString("base64");
  await step("importHeap", { name: "pages", base64 });
  const told = await run(async ({ KeptDocument, PersistentHeap }, _kept, { native, born }) => {
    const heap = await PersistentHeap.open("pages");
    const document = KeptDocument.open(heap, native);
    const found = document.querySelectorAll("li > a.visited").map((link) => link.outerHTML);
    KeptDocument.open(heap, born, { html: "<a href=/3>three</a>" });
    await heap.close();
    return found;
  }, { native, born });
  assert.deepEqual(told, [1, 2].map((number) =>
    `<a href="/${number}" class="visited">${["one", "two"][number - 1]}</a>`));
  const back = await step("exportHeap", { name: "pages", limit: 256 * 2 ** 20 });
  writeFileSync(join(folder, "back"), Buffer.from(back, "base64"));
  holdfast("heap", "rm", "pages");
  holdfast("heap", "import", join(folder, "back"), "pages");
  // There is no such file: it is opened, and not parsed.
  assert.equal(links(born), "three -> /3\n1 links visited\n");
  holdfast("heap", "check", "pages");
});
