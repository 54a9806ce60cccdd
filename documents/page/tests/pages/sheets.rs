//! The style sheets of a page that apply.

use crate::{Place, anew, view};

const RED: &str = "html { background: rgb(200, 30, 30) }";

/// Whether the page is red.
fn is_red(place: &Place, head: &str) -> bool {
    let page = place.write("a.html", format!("<!doctype html><head>{head}</head><p>text"));
    let pixels = anew(&page, view(300, 200));
    let last = &pixels.bytes[pixels.bytes.len() - 4..];
    assert!(last == [200, 30, 30, 255] || last == [255; 4], "{last:?}");
    last == [200, 30, 30, 255]
}

/// Style sheets apply by their medium, type and alternate set.
///
/// Guarantee: pages/style-sheets
#[test]
fn style_sheets_apply_by_media_type_and_set() {
    let place = Place::new();
    place.write("a.css", RED);
    for (counts, attributes) in [
        (true, ""),
        (true, "media=''"),
        (true, "media=screen"),
        (true, "media='print, screen'"),
        (true, "media='(min-width: 300px)'"),
        (true, "media='screen and (max-width: 300px)'"),
        (true, "media='not print'"),
        (true, "type=text/css"),
        (true, "type=' TEXT/CSS '"),
        (true, "title=A"),
        (false, "media=print"),
        (false, "media='(min-width: 301px)'"),
        (false, "media='not all'"),
        (false, "media='no such thing at all'"),
        (false, "media='screen { } a { } @media screen'"),
        (false, "media='screen;'"),
        (false, "type=text/less"),
    ] {
        let link = format!("<link rel=stylesheet href=a.css {attributes}>");
        assert_eq!(is_red(&place, &link), counts, "{link}");
        let style = format!("<style {attributes}>{RED}</style>");
        assert_eq!(is_red(&place, &style), counts, "{style}");
    }
    for (counts, head) in [
        (true, "<link rel='StyleSheet' href=a.css>".to_owned()),
        (false, "<link rel=stylesheet href=a.css disabled>".to_owned()),
        (false, "<link rel='alternate stylesheet' title=A href=a.css>".to_owned()),
        (false, "<link rel='stylesheet alternate' href=a.css>".to_owned()),
        (false, "<link rel=icon href=a.css>".to_owned()),
        // Else the page would be its own style sheet, of which the first rule is none.
        (false, format!("<link rel=stylesheet href=''><!-- {{}} {RED} -->")),
        (true, "<link rel=stylesheet href=a.css type='text/css; charset=utf-8'>".to_owned()),
        (false, format!("<style type='text/css; charset=utf-8'>{RED}</style>")),
        // The first title is that of the set that counts.
        (false, format!("<style title=A></style><style title=B>{RED}</style>")),
        (true, format!("<style title=A></style><style title=A>{RED}</style>")),
        (true, format!("<link rel='alternate stylesheet' title=A><style title=B>{RED}</style>")),
        (true, format!("<style title=A></style><style>{RED}</style>")),
        // One that is not of HTML has no set.
        (
            true,
            format!(
                "<style title=A></style><svg><style title=B></style></svg><style>{RED}</style>"
            ),
        ),
    ] {
        assert_eq!(is_red(&place, &head), counts, "{head}");
    }
}

/// Guarantee: pages/style-sheets
#[test]
fn a_style_sheet_that_does_not_count_is_not_asked_for() {
    let place = Place::new();
    let page = place.write(
        "a.html",
        "<!doctype html><link rel=stylesheet media=print href=gone.css><link rel=stylesheet disabled href=gone.css><p>text",
    );
    let opened = place.open(&page, view(300, 200));
    assert_eq!(opened.notes, [""; 0]);
}

/// Whether a page is red of which this is the style sheet, in it or beside it.
fn is_styled(place: &Place, style: &str) -> [bool; 2] {
    place.write("b.css", style);
    [format!("<style>{style}</style>"), "<link rel=stylesheet href=b.css>".to_owned()]
        .map(|head| is_red(place, &head))
}

/// The first rule of a style sheet with a byte order mark was not seen.
///
/// Guarantee: pages/style-sheets
#[test]
fn byte_order_mark_is_no_part_of_a_style_sheet() {
    let place = Place::new();
    let link = "<link rel=stylesheet href=b.css>";
    place.write("b.css", format!("\u{feff}{RED}"));
    assert!(is_red(&place, link));
    place.write("b.css", [b"\xEF\xBB\xBF/* \xE9 */ ".as_slice(), RED.as_bytes()].concat());
    assert!(is_red(&place, link));
}

/// Letters that have names in HTML have none in a style sheet, in the page or beside it.
///
/// Guarantee: pages/style-sheets
#[test]
fn style_sheets_are_not_read_as_html() {
    let place = Place::new();
    for value in ["&quot;", "&amp;quot;", "&", "&#34;"] {
        let style = format!("html:not([title=\"{value}\"]) {{ background: rgb(200, 30, 30) }}");
        assert_eq!(is_styled(&place, &style), [true; 2], "{value}");
    }
}

/// The engine panicked at an import whose address is none, and there was no page.
///
/// Guarantee: pages/style-sheets
#[test]
fn import_without_an_address_is_passed_over() {
    let place = Place::new();
    place.write("a.css", RED);
    for rule in [
        "@import '';",
        "@import url();",
        "@import url( ) screen;",
        "@IMPORT/**/URL(\"\");",
        "@import 'http://[';",
        "@import url(http://{{host}}/a.css);",
        "@import '",
        "@import",
        "/* @import url() */",
        // Written with a backslash: a name, an address, a line that goes on.
        "@\\69mport '';",
        "@impor\\74  url();",
        "@import u\\72l();",
        "@import U\\52 L( '' );",
        "@import 'http:\\2f/[';",
        "@import \"\\\n\";",
        "/* @import \" */ @import \"\";",
    ] {
        let style = |rest: &str| format!("{rule}\n{rest}");
        // Those that do not end take what follows with them.
        let has_more = !matches!(rule, "@import '" | "@import");
        assert_eq!(is_styled(&place, &style(RED)), [has_more; 2], "{rule}");
        // What follows is as early as it was.
        assert_eq!(is_styled(&place, &style("@import 'a.css';")), [has_more; 2], "{rule}");
    }
    assert_eq!(is_styled(&place, &format!("@media screen {{ @import ''; }} {RED}")), [true; 2]);
    for rule in ["@import '\\61.css';", "@\\49 MPORT u\\72l(a\\.css);", "@import 'a\\\n.css';"] {
        assert_eq!(is_styled(&place, rule), [true; 2], "{rule}");
    }
    let within = "<link rel=stylesheet href='data:text/css,@import \"a.css\";'>";
    assert!(!is_red(&place, within), "nothing is relative to it");
}
