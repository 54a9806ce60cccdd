//! Fonts that a page brings or names, and those that stand in for them.

use std::path::{Path, PathBuf};

use holdfast_page::{Pixels, Tier};

use crate::processes::out;
use crate::{Place, anew, view};

const FOLDER: &str = "/usr/share/fonts/truetype/dejavu";

/// A font of this machine: of letters with and without serifs.
fn font(name: &str) -> Option<Vec<u8>> {
    std::fs::read(Path::new(FOLDER).join(name)).ok()
}

fn of_style(place: &Place, style: &str) -> Pixels {
    anew(&page_of(place, style), view(300, 100))
}

fn page_of(place: &Place, style: &str) -> PathBuf {
    place.write(
        "a.html",
        format!(
            "<!doctype html><style>{style} p {{ font: 30px Own, monospace }}</style><p>Hamburg"
        ),
    )
}

/// Guarantee: pages/fonts
#[test]
fn sources_of_a_font_are_tried_in_their_order() {
    let place = Place::new();
    let Some(serif) = font("DejaVuSerif.ttf") else {
        println!("not run: there are no DejaVu fonts in {FOLDER}");
        return;
    };
    place.write("font.ttf", &serif);
    place.write("cut.woff2", b"wOF2\0\x01\0\0\0\0\xff\xff cut off");
    for other in ["a.eot", "a.svg", "a.woff"] {
        place.write(other, b"\0\x12 this is no font");
    }
    let wanted = of_style(&place, "@font-face { font-family: Own; src: url(font.ttf) }");
    assert!(wanted != of_style(&place, ""), "the page's font is used");
    for sources in [
        "url(a.eot?#iefix) format('embedded-opentype'), url(font.ttf) format('truetype')",
        "url(a.eot?#iefix) format(embedded-opentype), url(font.ttf)",
        "url(a.eot), url(font.ttf)",
        "url(a.svg#Own) format(\"svg\"), url(missing.woff2) format(\"woff2\"), url('font.ttf')",
        "url(a.woff) format('woff'), url(cut.woff2) format('woff2'), url(font.ttf) format(truetype)",
        "local('No such font of all'), url(missing.ttf), url(font.ttf)",
        "url(x.new) format('a-format-to-come'), url(font.ttf)",
        "local('DejaVu Serif')",
        "url(missing.ttf), local(DejaVuSerif)",
    ] {
        let rule = format!("@font-face {{ font-family: Own; src: {sources} }}");
        assert!(of_style(&place, &rule) == wanted, "{sources}");
        let nested = format!("@media screen {{ @supports (color: red) {{ {rule} }} }}");
        assert!(of_style(&place, &nested) == wanted, "nested: {sources}");
    }
    let notes = place
        .open(
            &page_of(
                &place,
                "@font-face { font-family: Own; src: url(missing.ttf), url(font.ttf) }",
            ),
            view(300, 100),
        )
        .notes;
    assert_eq!(notes, Vec::<String>::new(), "the next source is as good");
    let page =
        page_of(&place, "@font-face { font-family: Own; src: url(missing.ttf), url(a.eot) }");
    let notes = place.open(&page, view(300, 100)).notes;
    assert!(
        notes.iter().any(|note| note.contains("the font Own: none of its sources")),
        "{notes:?}"
    );
    // What was missing is there: the page is another one.
    assert_eq!(place.open(&page, view(300, 100)).tier, Tier::Pixels);
    place.write("missing.ttf", &serif);
    let opened = place.open(&page, view(300, 100));
    assert_eq!(opened.tier, Tier::Document);
    assert!(opened.pixels == wanted);
}

/// Arial became DejaVu Sans where `fc-match Arial` says Liberation Sans.
///
/// Guarantee: pages/fonts
#[test]
fn missing_families_follow_fontconfig() {
    let place = Place::new();
    if font("DejaVuSerif.ttf").is_none() {
        println!("not run: there are no DejaVu fonts in {FOLDER}");
        return;
    }
    let rule = |alias: &str| {
        format!(
            "<?xml version='1.0'?><!DOCTYPE fontconfig SYSTEM 'fonts.dtd'><fontconfig><dir>{FOLDER}</dir>\
             <cachedir>{}</cachedir>{alias}\
             <alias><family>Loose</family><default><family>serif</family></default></alias>\
             <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>\
             <alias><family>serif</family><prefer><family>DejaVu Serif</family></prefer></alias>\
             <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias></fontconfig>",
            place.folder.path().join("fonts-cache").display()
        )
    };
    let same = |to: &str| {
        format!(
            "<alias binding='same'><family>Corporate</family><accept><family>{to}</family></accept></alias>"
        )
    };
    let config = place.write("fonts.conf", rule(&same("DejaVu Serif")));
    let run = |families: &str, more: &[&str]| {
        let page = place.write(
            &format!("{}.html", families.replace([' ', ','], "")),
            format!("<!doctype html><p style='font: 30px {families}'>Hamburg"),
        );
        let picture = place.folder.path().join("out.png");
        let mut command = place.program();
        command.env("FONTCONFIG_FILE", &config).arg("open").arg(&page).args([
            "--viewport",
            "300x100",
            "--png",
        ]);
        let output = command.arg(&picture).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (std::fs::read(&picture).unwrap(), out(&output).0)
    };
    let anew = |families: &str| run(families, &["--no-cache"]).0;
    let [sans, serif, mono] = ["DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono"].map(anew);
    assert!(sans != serif && serif != mono);
    assert!(anew("Corporate") == serif, "the family that stands in");
    assert!(
        anew("corporate, DejaVu Sans Mono") == serif,
        "in small letters, before the next family"
    );
    assert!(
        anew("Nobody, DejaVu Sans Mono") == mono,
        "no family is meant: the next one has its turn"
    );
    assert!(
        anew("Loose, DejaVu Sans Mono") == mono,
        "only its kind is said: the next one has its turn"
    );
    assert!(anew("Nobody, Corporate, DejaVu Sans Mono") == serif);
    // What was kept is of that configuration.
    let (kept, told) = run("Corporate", &[]);
    assert!(kept == serif && told.starts_with("cold: "), "{told}");
    let (again, told) = run("Corporate", &[]);
    assert!(again == serif && told.starts_with("pixels: "), "{told}");
    let (painted, told) = run("Corporate", &["--repaint"]);
    assert!(painted == serif && told.starts_with("display list: "), "{told}");
    std::fs::write(&config, rule(&same("DejaVu Sans Mono"))).unwrap();
    let (changed, told) = run("Corporate", &[]);
    assert!(changed == mono && told.starts_with("document: "), "{told}");
}
