//! Presentational attributes of HTML look as the same rules in CSS.

use holdfast_page::Pixels;

use crate::{Place, anew, is_drawn, png, view};

fn of(place: &Place, body: &str) -> Pixels {
    anew(&place.write("a.html", format!("<!doctype html><body>{body}")), view(300, 200))
}

/// Guarantee: pages/svg
#[test]
fn old_attributes_look_as_css_says_it() {
    let place = Place::new();
    place.write("a.png", png(4, 4, [9, 99, 199, 255]));
    let cell = |table: &str, inner: &str| {
        format!(
            "<table style='border-collapse: separate; {table}'><tr><td style='{inner}'>x<br>y<td style='{inner}'>z</table>"
        )
    };
    let plain = |table: &str, inner: &str| {
        format!("<table {table}><tr><td {inner}>x<br>y<td {inner}>z</table>")
    };
    for (attribute, css) in [
        (
            "<ol type=A><li>x</ol>".to_owned(),
            "<ol style='list-style-type: upper-alpha'><li>x</ol>".to_owned(),
        ),
        (
            "<ol type=a><li>x</ol>".to_owned(),
            "<ol style='list-style-type: lower-alpha'><li>x</ol>".to_owned(),
        ),
        (
            "<ol type=I><li>x<li>y</ol>".to_owned(),
            "<ol style='list-style-type: upper-roman'><li>x<li>y</ol>".to_owned(),
        ),
        (
            "<ul type=SQUARE><li>x</ul>".to_owned(),
            "<ul style='list-style-type: square'><li>x</ul>".to_owned(),
        ),
        (
            "<font color=red size=5 face='DejaVu Serif'>x</font>".to_owned(),
            "<span style='color: red; font-size: x-large; font-family: DejaVu Serif'>x</span>"
                .to_owned(),
        ),
        (
            "<font color='#00f' size='+2'>x".to_owned(),
            "<span style='color: blue; font-size: x-large'>x".to_owned(),
        ),
        (plain("border=1", ""), cell("border: 1px outset gray", "border: 1px inset gray")),
        (plain("border=4", ""), cell("border: 4px outset gray", "border: 1px inset gray")),
        (plain("border=0", ""), cell("", "")),
        (plain("cellpadding=9", ""), cell("", "padding: 9px")),
        (plain("cellspacing=9", ""), cell("border-spacing: 9px", "")),
        (plain("", "valign=bottom"), cell("", "vertical-align: bottom")),
        (plain("", "bgcolor=tan"), cell("", "background-color: tan")),
        (plain("bgcolor=#00ff00", ""), cell("background-color: lime", "")),
        (plain("background=a.png", ""), cell("background-image: url(a.png)", "")),
        ("<q>a b</q>".to_owned(), "\u{201C}a b\u{201D}".to_owned()),
        (
            "<img src=a.png align=right>x".to_owned(),
            "<img src=a.png style='float: right'>x".to_owned(),
        ),
        (
            "<details><summary>S</summary>hidden <p>more</details>x".to_owned(),
            "<details><summary>S</summary></details>x".to_owned(),
        ),
        ("<img src=none.png alt='What it shows'> x".to_owned(), "What it shows x".to_owned()),
        ("<img src=none.png alt=''> x".to_owned(), "<img src=none.png> x".to_owned()),
        ("<img src=a.png alt='What it shows'> x".to_owned(), "<img src=a.png> x".to_owned()),
        (
            "<input placeholder='Your name'>".to_owned(),
            "<input value='Your name' style='color: #757575'>".to_owned(),
        ),
        ("<input placeholder='Your name' value=x>".to_owned(), "<input value=x>".to_owned()),
        (
            "<textarea placeholder='Your name'></textarea>".to_owned(),
            "<textarea style='color: #757575'>Your name</textarea>".to_owned(),
        ),
    ] {
        assert!(of(&place, &attribute) == of(&place, &css), "{attribute}");
    }
    // A page's style sheet says more than an attribute.
    let both =
        "<style>font { color: green } table, td { border: 0 }</style><font color=red>x</font>";
    assert!(of(&place, both) == of(&place, "<span style='color: green'>x</span>"), "{both}");
    let lists = [
        "<select><option>one<option selected>two</select>",
        "<select><option>one<option>two</select>",
    ];
    let shown = lists.map(|list| of(&place, list));
    assert!(shown.iter().all(is_drawn) && shown[0] != shown[1], "the chosen option is shown");
}

/// Numbers in attributes that the engine counted with, or painted with, until it failed.
///
/// Guarantee: pages/too-much
#[test]
fn sizes_of_any_kind_are_laid_out() {
    let place = Place::new();
    for body in [
        "<ol start=0><li>x</ol>".to_owned(),
        "<ol start=-7><li>x</ol>".to_owned(),
        "<ol start=99999999999999999999><li>x</ol>".to_owned(),
        "<td bgcolor='#\u{e9}1'>x".to_owned(),
        format!("<table>{}</table>", "<tr><td rowspan=1000 colspan=1000>x".repeat(66)),
        "<table><tr><td rowspan=0>x<td colspan=0>y<tr><td rowspan=65535>z</table>".to_owned(),
    ] {
        let page = place.write("a.html", format!("<!doctype html>{body}"));
        let opened = place.open(&page, view(300, 200));
        assert!(opened.content.0 > 0, "{body:.60}");
        assert!(place.open(&page, view(300, 200)).pixels == opened.pixels, "{body:.60}");
    }
    for border in ["dashed", "dotted", "double", "groove"] {
        for size in ["1e9px", "1e30px", "1e38px"] {
            let page = place.write("a.html", format!(
                "<!doctype html><p>text<div style='width: {size}; height: {size}; border: 3px {border} red; border-radius: {size}'>"
            ));
            let opened = place.open(&page, view(300, 200));
            assert!(is_drawn(&opened.pixels), "{border} {size}");
            assert!(place.open(&page, view(300, 200)).pixels == opened.pixels, "{border} {size}");
        }
    }
}
