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
