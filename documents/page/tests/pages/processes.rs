//! The program itself: killed, twice at once, with fonts that go.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use holdfast_page::Tier;

use crate::{Place, anew, png, view};

impl Place {
    pub(crate) fn program(&self) -> Command {
        self.program_at(Path::new(env!("CARGO_BIN_EXE_holdfast-page")))
    }

    fn program_at(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("HOLDFAST_HOME", self.home())
            .env("HOLDFAST_POOL", self.pool())
            .stdin(Stdio::null());
        command
    }
}

pub(crate) fn out(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// After a kill at any moment, the cache holds the old view or the new one.
///
/// Guarantee: pages/kills
#[test]
fn kill_leaves_the_old_view_or_the_new() {
    let place = Place::new();
    let view = view(300, 200);
    let text = |number: u32| {
        let rest = "<p>text of a page that is written to the cache again and again".repeat(300);
        format!("<!doctype html><title>{number}</title><h1>{number}</h1>{rest}")
    };
    let page = place.write("a.html", text(0));
    place.open(&page, view);
    // As long as one takes by itself, so that kills fall on all of it, and most on its end, where
    // it is kept.
    let started = Instant::now();
    place.write("a.html", text(1));
    run(&place, &page);
    let takes = started.elapsed();
    for number in 2..26 {
        place.write("a.html", text(number));
        let mut child =
            opening(&place, &page).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let part = 0.5 + f64::from(number) / 40.0;
        std::thread::sleep(takes.mul_f64(part));
        // It may have ended.
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(place.cache().check().unwrap(), [], "kill {number}");
        let rows = place.cache().views().unwrap();
        assert_eq!(rows.len(), 1);
        assert!(
            [number, number - 1].map(|n| n.to_string()).contains(&rows[0].title),
            "kill {number}: {rows:?}"
        );
        assert!(rows[0].document_bytes > 0, "kill {number}: the view has no document");
        assert_eq!(place.open(&page, view).pixels, anew(&page, view), "kill {number}");
        assert_eq!(place.open(&page, view).tier, Tier::Pixels);
    }
}

fn opening(place: &Place, page: &Path) -> Command {
    let mut command = place.program();
    command.arg("open").arg(page).args(["--viewport", "300x200", "--timeout", "300"]);
    command
}

fn run(place: &Place, page: &Path) -> (String, String) {
    let output = opening(place, page).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    out(&output)
}

/// The program without the engine, alone in a folder, writes the file of a page that is kept, as it was
/// written first. For all else it asks for the engine, and has written and said nothing of its own.
///
/// Guarantee: pages/small-program
#[test]
fn kept_file_needs_no_engine() {
    let place = Place::new();
    let text = "<!doctype html><title>Kept</title><link rel=stylesheet href=a.css><h1>a";
    let page = place.write("a.html", format!("{text}{}", "<p>text".repeat(40)));
    place.write("a.css", "h1 { color: green }");
    place.write("b.html", "<!doctype html><h1 id=b>b");
    let folder = place.write("x", "").with_file_name("alone");
    std::fs::create_dir(&folder).unwrap();
    let small = folder.join("holdfast-page");
    std::fs::copy(env!("CARGO_BIN_EXE_holdfast-page"), &small).unwrap();
    let file = folder.join("out.png");
    let asked = |program: Command, arguments: &[&str]| {
        let mut program = program;
        let _ = std::fs::remove_file(&file);
        program.current_dir(page.parent().unwrap()).args(arguments);
        let output = program.output().unwrap();
        (output.status.code(), out(&output), std::fs::read(&file).ok())
    };
    let alone = |arguments: &[&str]| {
        let mut program = place.program_at(&small);
        program.env("PATH", "/nowhere");
        asked(program, arguments)
    };
    let png = file.to_str().unwrap();
    let opening = ["open", "a.html", "--viewport", "300x200", "--png", png];
    let needs_engine = |what: &str, arguments: &[&str]| {
        let (code, (said, complained), written) = alone(arguments);
        assert_eq!((code, &*said, written.is_some()), (Some(3), "", false), "{what}");
        assert!(
            complained.contains("needs the program holdfast-page-engine"),
            "{what}: {complained}"
        );
        assert!(complained.contains("cargo build --release -p holdfast-page"), "{complained}");
    };
    needs_engine("nothing is kept", &opening);
    let (code, (said, _), made) = asked(place.program(), &opening);
    assert!(code == Some(0) && said.starts_with("cold"), "{said}");
    for more in [&[][..], &["--offline"]] {
        let (code, (said, complained), kept) = alone(&[&opening, more].concat());
        assert_eq!((code, &*complained), (Some(0), ""));
        assert!(said.starts_with("pixels") && said.ends_with("from 0: Kept\n"), "{said}");
        assert!(kept.is_some() && kept == made);
    }
    let (_, (json, _), _) = alone(&[&opening[..], &["--json"]].concat());
    assert!(
        json.contains("\"tier\":\"pixels\"") || json.contains("\"tier\": \"pixels\""),
        "{json}"
    );
    // Both programs report a file that cannot be written in the same words.
    let nowhere = ["open", "a.html", "--viewport", "300x200", "--png", "missing/out.png"];
    let engine = place.program_at(Path::new(env!("CARGO_BIN_EXE_holdfast-page-engine")));
    let (by_engine, by_small) = (asked(engine, &nowhere), alone(&nowhere));
    assert_eq!((&by_engine.0, &by_engine.1), (&by_small.0, &by_small.1));
    assert_eq!(by_small.0, Some(7));
    let other_view = ["open", "a.html", "--viewport", "200x200", "--png", png];
    for (what, arguments) in [
        ("another page", &["open", "b.html", "--png", png][..]),
        ("another viewport", &other_view),
        ("another place", &[&opening[..], &["--scroll", "3"]].concat()),
        ("painted anew", &[&opening[..], &["--repaint"]].concat()),
        ("without a cache", &[&opening[..], &["--no-cache"]].concat()),
        ("servers may be asked", &[&opening[..], &["--network"]].concat()),
        ("a server", &["open", "http://127.0.0.1:9/", "--png", png]),
        ("no file", &["open", "a.html", "--viewport", "300x200"]),
        ("a window", &[&opening[..], &["--window"]].concat()),
        ("a wrong argument", &[&opening[..], &["--wrong"]].concat()),
        ("help", &["open", "--help"]),
        ("another command", &["ls"]),
        ("nothing", &[]),
    ] {
        needs_engine(what, arguments);
    }
    place.write("a.css", "h1 { color: blue }");
    needs_engine("a style sheet changed", &opening);
    let (code, (said, complained), changed) = asked(place.program(), &opening);
    assert!(code == Some(0) && complained.contains("a.css changed"), "{said} {complained}");
    assert!(changed.is_some() && changed != made);
    assert!(alone(&opening).2 == changed, "and that is kept now");
}

/// Guarantee: pages/kills
#[test]
fn several_programs_share_one_cache() {
    let place = Place::new();
    let pages: Vec<PathBuf> = (0..3)
        .map(|n| place.write(&format!("{n}.html"), format!("<!doctype html><h1>Page {n}")))
        .collect();
    for round in 0..3 {
        let children: Vec<_> = pages
            .iter()
            .chain(&pages)
            .map(|page| {
                opening(&place, page).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "round {round}: {output:?}");
        }
    }
    for page in &pages {
        // A process that found the cache taken for too long has kept nothing, and said so; now none
        // has it.
        run(&place, page);
        assert_eq!(run(&place, page).0.split(':').next(), Some("pixels"));
    }
    assert_eq!(place.cache().check().unwrap(), []);
}

/// A folder of fonts of its own for the program, with a copy of one of the system's.
fn own_fonts(place: &Place) -> Option<(PathBuf, PathBuf)> {
    let font = Path::new("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf");
    if !font.is_file() {
        println!("not run: there is no {}; `./test` installs it", font.display());
        return None;
    }
    let folder = place.write("x", "").with_file_name("fonts");
    std::fs::create_dir(&folder).unwrap();
    let own = folder.join("own.ttf");
    std::fs::copy(font, &own).unwrap();
    let cache = folder.with_file_name("fontconfig-cache");
    let text = format!(
        "<fontconfig><dir>{}</dir><cachedir>{}</cachedir></fontconfig>",
        folder.display(),
        cache.display()
    );
    Some((place.write("fonts.conf", text), own))
}

/// A page whose font is missing or changed is made again, and a note says so.
///
/// Guarantee: pages/changed
#[test]
fn changed_font_remakes_the_page() {
    let place = Place::new();
    let Some((configuration, font)) = own_fonts(&place) else { return };
    let page = place.write("a.html", "<!doctype html><p>text");
    let open_page = |page: &Path| {
        let output = opening(&place, page).env("FONTCONFIG_FILE", &configuration).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        out(&output)
    };
    let open = || open_page(&page);
    // Of this one there is no list, which would name the font.
    let long =
        place.write("long.html", "<!doctype html><p>text<div style='height: 5000000px'></div>");
    for page in [&page, &long] {
        assert!(open_page(page).0.starts_with("cold"));
        assert!(open_page(page).0.starts_with("pixels"));
    }

    // Another font in the same file, as large, at the same time: only its bytes tell.
    let bytes = std::fs::read(&font).unwrap();
    let changed = std::fs::metadata(&font).unwrap().modified().unwrap();
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    std::fs::write(&font, &other).unwrap();
    std::fs::File::options().write(true).open(&font).unwrap().set_modified(changed).unwrap();
    let (said, notes) = open();
    assert!(
        said.starts_with("document") && notes.contains("own.ttf is gone or changed"),
        "{said}{notes}"
    );
    assert!(open().0.starts_with("pixels"));
    let (said, notes) = open_page(&long);
    assert!(
        said.starts_with("document") && notes.contains("fonts of the system changed"),
        "{said}{notes}"
    );
    assert!(open_page(&long).0.starts_with("pixels"));

    // Another font appears: the page may look otherwise.
    std::fs::write(font.with_file_name("second.ttf"), &bytes).unwrap();
    let (said, notes) = open();
    assert!(
        said.starts_with("document") && notes.contains("fonts of the system changed"),
        "{said}{notes}"
    );
    std::fs::remove_file(font.with_file_name("second.ttf")).unwrap();
    std::fs::remove_file(&font).unwrap();
    let (said, notes) = open();
    assert!(said.starts_with("document") && notes.contains("there are no fonts"), "{said}{notes}");

    // Behind a link in the folder, and in a folder that a file beside the configuration names.
    let more = place.write("conf.d", "").with_file_name("more");
    std::fs::create_dir(&more).unwrap();
    std::fs::remove_file(more.with_file_name("conf.d")).unwrap();
    std::fs::create_dir(more.with_file_name("conf.d")).unwrap();
    let link = font.with_file_name("link");
    let named = format!("<fontconfig><dir>{}</dir></fontconfig>", more.display());
    for is_link in [true, false] {
        if is_link {
            std::os::unix::fs::symlink(&more, &link).unwrap();
        } else {
            std::fs::remove_file(&link).unwrap();
            place.write("conf.d/50-more.conf", &named);
            let text = std::fs::read_to_string(&configuration).unwrap();
            let include = "<fontconfig><include>conf.d</include>";
            std::fs::write(&configuration, text.replacen("<fontconfig>", include, 1)).unwrap();
        }
        let hidden = more.join("hidden.ttf");
        std::fs::write(&hidden, &bytes).unwrap();
        open();
        assert!(open().0.starts_with("pixels"), "{is_link}");
        std::fs::remove_file(&hidden).unwrap();
        let (said, notes) = open();
        assert!(
            said.starts_with("document") && notes.contains("there are no fonts"),
            "{said}{notes}"
        );
    }
}

/// Guarantee: pages/terminal
#[test]
fn what_a_page_says_does_not_steer_the_terminal() {
    let place = Place::new();
    let evil = "\u{1b}]0;x\u{7}";
    let style = "<link rel=stylesheet href='a%1b]0;x%07.css'>";
    let link = format!("<a href='{evil}'>link</a>");
    let page = place.write("a.html", format!("<!doctype html><title>{evil}</title>{style}{link}"));
    let mut said = run(&place, &page);
    place.write(&format!("a{evil}.css"), "a { color: red }");
    let (again, notes) = run(&place, &page);
    assert!(
        again.contains("\\u{1b}]0;x\\u{7}") && notes.contains("\\u{1b}]0;x\\u{7}"),
        "{again}{notes}"
    );
    said.0 += &again;
    said.1 += &notes;
    let missing = place.folder.path().join(format!("{evil}.html"));
    for arguments in
        [vec!["ls"], vec!["show", page.to_str().unwrap()], vec!["open", missing.to_str().unwrap()]]
    {
        let (lines, notes) = out(&place.program().args(&arguments).output().unwrap());
        assert!(
            format!("{lines}{notes}").contains("\\u{1b}]0;x\\u{7}"),
            "{arguments:?}: {lines}{notes}"
        );
        said.0 += &lines;
        said.1 += &notes;
    }
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!said.0.contains(steers) && !said.1.contains(steers), "{said:?}");
}

/// A page that takes memory without end ends the program but leaves the cache whole.
///
/// Guarantee: pages/memory
#[test]
fn endless_memory_leaves_the_cache_whole() {
    let place = Place::new();
    let good = place.write("good.html", "<!doctype html><p>text");
    run(&place, &good);
    let greedy = "u { text-decoration: underline dashed; letter-spacing: 1e9px }";
    let page = place.write("a.html", format!("<!doctype html><style>{greedy}</style><u>ab</u>"));
    let mut child =
        opening(&place, &page).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let limits = format!("/proc/{}/limits", child.id());
    let is_bounded = || {
        let text = std::fs::read_to_string(&limits).unwrap_or_default();
        let soft = text.lines().find_map(|line| line.strip_prefix("Max data size"));
        soft.is_some_and(|line| line.trim_start().starts_with("4294967296 "))
    };
    let started = Instant::now();
    let mut bounded = is_bounded();
    while !bounded && child.try_wait().unwrap().is_none() && started.elapsed().as_secs() < 30 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        bounded = is_bounded();
    }
    // It may have ended.
    let _ = child.kill();
    child.wait().unwrap();
    assert!(bounded, "nothing bounds its memory");

    // A lower limit stays, and is soon met.
    let command = "ulimit -c 0; ulimit -d 500000 && exec \"$0\" open \"$1\" --timeout 300";
    let opening = place.program();
    let program = opening.get_program();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .arg(program)
        .arg(&page)
        .envs(opening.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let ended = shell.stdin(Stdio::null()).output().unwrap();
    assert!(!ended.status.success() && out(&ended).1.contains("memory allocation"), "{ended:?}");
    assert_eq!(place.cache().check().unwrap(), []);
    assert!(run(&place, &good).0.starts_with("pixels"));
}

/// Guarantee: pages/program
#[test]
fn the_program_paints_lists_shows_and_removes() {
    let place = Place::new();
    place.write("a.png", png(30, 30, [1, 200, 3, 255]));
    let page = place
        .write("a.html", "<!doctype html><title>A page</title><a href=b.html><img src=a.png></a>");
    let pictures = ["one.png", "two.png"].map(|name| place.write(name, ""));
    for (picture, tier) in pictures.iter().zip(["cold: ", "pixels: "]) {
        let output = opening(&place, &page).arg("--png").arg(picture).output().unwrap();
        let (said, notes) = out(&output);
        assert!(said.starts_with(tier) && said.contains("A page"), "{said}{notes}");
    }
    let [one, two] = pictures.map(|picture| std::fs::read(picture).unwrap());
    assert!(one == two && one.starts_with(b"\x89PNG"));
    let say = |arguments: &[&str]| {
        let output = place.program().args(arguments).output().unwrap();
        (out(&output), output.status.code().unwrap())
    };
    let file = page.to_str().unwrap();
    let ((listed, _), _) = say(&["ls"]);
    assert!(listed.contains("300x200@1") && listed.contains("a.html  A page"), "{listed}");
    let ((shown, _), _) = say(&["show", file]);
    assert!(shown.contains("1 link\n") && shown.contains("b.html"), "{shown}");
    let ((counted, _), code) = say(&["stats"]);
    assert!(counted.starts_with("1 view in ") && code == 0, "{counted}");
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&say(arguments).0.0).unwrap()
    };
    let report = json(&["open", file, "--viewport", "300x200", "--json"]);
    assert_eq!((&report["tier"], &report["title"]), (&"pixels".into(), &"A page".into()));
    assert!(report["total_ms"].as_f64().unwrap() > 0.0 && report["png_ms"].is_null(), "{report}");
    assert_eq!(json(&["ls", "--json"])[0]["viewport"], serde_json::json!([300, 200]));
    assert_eq!(json(&["stats", "--json"])["views"], 1);
    assert_eq!(say(&["rm", file]).0.0, "1 view removed\n");
    assert_eq!(say(&["rm", file]).1, 3);
    assert_eq!(say(&["ls"]).0.0, "");
    assert_eq!(say(&["open", "no-such-page.html"]).1, 3);
    assert_eq!(say(&["open", "ftp://example.org/"]).1, 2);
    assert_eq!(say(&["open", file, "--viewport", "0x5"]).1, 2);
    let ((said, _), _) = say(&["open", file, "--no-cache"]);
    assert!(said.starts_with("cold"), "{said}");
    assert_eq!(say(&["ls"]).0.0, "", "--no-cache keeps nothing");
}
