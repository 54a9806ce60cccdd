//! Pages of `holdfast trace --html` in a browser, where there is one: nothing is beyond the edge,
//! and every label can be read, on a phone as on a desk.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::trace::trace;
use crate::{scratch, succeed, tell};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A phone, a tablet, a desk.
const WIDTHS: [u32; 3] = [390, 768, 1280];

/// Shows each page in frames of all widths, and says of each what does not fit: JSON in the body.
const PROBE: &str = r#"<!doctype html><meta charset="utf-8"><body><script>
const pages = __PAGES__, widths = __WIDTHS__;
function look(frame, width) {
  const of = frame.contentDocument, wrong = [];
  const shown = (one) => one.getClientRects().length > 0;
  const wide = of.documentElement.scrollWidth;
  if (wide > width) wrong.push("the page is " + wide + " px wide");
  for (const cell of of.querySelectorAll("td, th, h1, h2, p, .fact, button, select")) {
    const { left, right } = cell.getBoundingClientRect();
    if (!shown(cell) || cell.closest("thead") && width < 1080) continue;
    // On a desk a table is one, which is looked at below.
    if (width < 1080 && (left < -0.5 || right > width + 0.5)) wrong.push(cell.tagName + " beyond the edge: " + cell.textContent.slice(0, 40));
    if (width < 1080 && cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth) wrong.push(cell.tagName + " cut off: " + cell.textContent.slice(0, 40));
  }
  for (const table of of.querySelectorAll(".scroll")) {
    if (width >= 1080 && table.scrollWidth > table.clientWidth + 1) wrong.push("a table of " + table.scrollWidth + " px in " + table.clientWidth);
  }
  let labels = 0;
  for (const label of of.querySelectorAll("svg text")) {
    const svg = label.ownerSVGElement, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const size = parseFloat(frame.contentWindow.getComputedStyle(label).fontSize) * scale;
    const { left, right } = label.getBoundingClientRect(), around = svg.getBoundingClientRect();
    labels += 1;
    if (size < 11) wrong.push("a label of " + size + " px: " + label.textContent);
    if (left < around.left - 1 || right > around.right + 1) wrong.push("a label beyond its picture: " + label.textContent);
  }
  return { width, labels, cells: of.querySelectorAll("td").length, wrong };
}
async function run() {
  const frames = pages.flatMap((page, index) => widths.map((width) => {
    const frame = document.createElement("iframe");
    Object.assign(frame.style, { width: width + "px", height: "900px", border: 0, display: "block" });
    frame.srcdoc = page;
    const loaded = new Promise((done) => { frame.onload = done; });
    document.body.append(frame);
    return { index, width, frame, loaded };
  }));
  await Promise.all(frames.map((one) => one.loaded));
  // Pictures are drawn once their width is known.
  const empty = () => frames.filter(({ frame }) => [...frame.contentDocument.querySelectorAll(".chart")].some((one) => !one.firstChild));
  for (let rounds = 0; rounds < 300 && (rounds < 3 || empty().length); rounds += 1) await new Promise((done) => setTimeout(done, 100));
  if (empty().length) throw new Error("not drawn: " + empty().map((one) => one.index + " at " + one.width));
  const found = frames.map(({ index, width, frame }) => ({ page: index, ...look(frame, width) }));
  document.body.textContent = "found:" + JSON.stringify(found) + ":end";
}
run().catch((error) => { document.body.textContent = "failed: " + error; });
</script>"#;

fn browser() -> Option<&'static str> {
    let works = |name: &&str| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    BROWSERS.into_iter().find(works)
}

/// What the browser says of pages.
fn probed(browser: &str, place: &Path, pages: &[String]) -> Vec<Value> {
    // A page ends no script of the probe.
    let quoted = serde_json::to_string(pages).unwrap().replace('<', "\\u003c");
    let probe = PROBE.replace("__PAGES__", &quoted).replace("__WIDTHS__", &format!("{WIDTHS:?}"));
    let file = place.join("probe.html");
    std::fs::write(&file, probe).unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]);
    command.args([
        "--disable-dev-shm-usage",
        "--window-size=1400,1000",
        "--virtual-time-budget=120000",
    ]);
    let profile = format!("--user-data-dir={}", place.join("profile").display());
    let output = command.args([profile.as_str(), "--dump-dom"]).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.split_once("found:").and_then(|(_, rest)| rest.split_once(":end"));
    let (found, _) =
        found.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(&found.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
        .unwrap()
}

/// Guarantee: trace/forms
#[test]
fn pages_fit_a_phone_and_a_desk() {
    let Some(browser) = browser() else {
        println!("not run: there is no browser ({})", BROWSERS.join(", "));
        return;
    };
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let work = "for i in 1 2 3 4 5 6 7 8; do ls /usr/bin /etc | wc -l; done; sleep 0.02; cat /no/such/file; true";
    for (name, work) in [("a.trace", work), ("b.trace", "ls /usr | sort >/dev/null; sleep 0.01")] {
        let told = tell(&mut trace(
            &scratch,
            &["run", "--backend", "ptrace", "-o", &file(name), "--", "sh", "-c", work],
        ));
        assert_eq!(told.status, 0, "{}", told.err);
    }
    succeed(&mut trace(&scratch, &["report", &file("a.trace"), "--html", &file("report.html")]));
    succeed(&mut trace(
        &scratch,
        &["diff", &file("a.trace"), &file("b.trace"), "--html", &file("diff.html")],
    ));
    let on = format!("a-platform-of-a-long-name={},memory=/dev/shm", place.path().display());
    let html = file("matrix.html");
    let matrix = [
        "matrix",
        "--on",
        &on,
        "-n",
        "1",
        "--warm-ups",
        "0",
        "--keep-caches",
        "--backend",
        "ptrace",
        "--html",
        &html,
    ];
    succeed(trace(&scratch, &matrix).args(["--", "sh", "-c", "ls / >list; sort list"]));
    let pages = ["report.html", "diff.html", "matrix.html"]
        .map(|name| std::fs::read_to_string(file(name)).unwrap());
    let found = probed(browser, place.path(), &pages);
    assert_eq!(found.len(), pages.len() * WIDTHS.len());
    for one in &found {
        assert_eq!(
            one["wrong"].as_array().unwrap(),
            &Vec::<Value>::new(),
            "page {} at {}",
            one["page"],
            one["width"]
        );
        assert!(one["cells"].as_u64().unwrap() > 20, "{one}");
        // The report has two pictures with labels.
        assert!(one["page"] != 0 || one["labels"].as_u64().unwrap() > 8, "{one}");
    }
}
