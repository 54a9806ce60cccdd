//! Pictures that cost as much as they can, and some that people have.

use super::cost::{TOO_DEEP, TOO_OFTEN};
use super::path::{TOO_LARGE_ARC, TOO_MANY_EMPTY, TOO_MANY_POINTS, size_of_path};
use super::sheets::{Asks, TOO_MANY_RULES, rules_of};
use super::xml::{TOO_MANY_ATTRIBUTES, TOO_MANY_NAMESPACES};
use super::*;

/// Two pixels by three.
const PNG: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAYAAAC56t6BAAAAC0lEQVR4nGNgwAkAABsAAco8Sg0AAAAASUVORK5CYII=";

fn vetted(body: &str) -> Result<(String, SvgSummary), &'static str> {
    let text = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' xmlns:x='http://www.w3.org/1999/xlink'>{body}</svg>"
    );
    let (bytes, vetted) = vet_file(text.as_bytes(), 1 << 20)?.expect("it is XML");
    Ok((String::from_utf8(bytes).unwrap(), vetted))
}

/// Guarantee: pages/svg-bounds
#[test]
fn references_out_of_a_picture_are_taken_away() {
    for href in [
        "/etc/passwd.png",
        "file:///a.png",
        "a.svg",
        "http://a/b.png",
        "#a",
        "data:image/svg+xml,%3Csvg/%3E",
    ] {
        for image in ["image href", "image x:href", "image width='1' x:href"] {
            let (text, found) = vetted(&format!("<{image}='{href}'/>")).unwrap();
            assert!(!text.contains("href="), "{text}");
            assert!(found.lacks.contains("images that are not in it"));
        }
    }
    let (text, found) =
        vetted(&format!("<image href='{PNG}'/><use href='#a'/><a href='b.html'/>")).unwrap();
    assert!(text.contains(PNG) && text.contains("#a") && text.contains("b.html"), "{text}");
    assert_eq!((found.pixels, found.lacks.len()), (6, 0));
    // By an entity, too.
    let text = "<!DOCTYPE svg [<!ENTITY i '<image href=\"/etc/a.png\"/>'>]>\
        <svg xmlns='http://www.w3.org/2000/svg'>&i;</svg>";
    let (bytes, _) = vet_file(text.as_bytes(), 1 << 20).unwrap().unwrap();
    assert!(!String::from_utf8(bytes).unwrap().contains("href="));
}

/// Guarantee: pages/svg-bounds
#[test]
fn what_is_used_again_and_again_is_counted_each_time() {
    let doubling = |levels: usize, element: &dyn Fn(usize) -> String| -> String {
        (0..levels).map(element).chain([format!("<path id='g{levels}'/>")]).collect()
    };
    let uses = |level: usize| {
        let next = level + 1;
        format!("<g id='g{level}'><use href='#g{next}'/><use x:href='#g{next}'/></g>")
    };
    assert!(vetted(&doubling(10, &uses)).is_ok());
    let patterns = |level: usize| {
        let fill = format!("fill='url(#g{})'", level + 1);
        format!("<pattern id='g{level}'><rect {fill}/><rect style=\"{fill}\"/></pattern>")
    };
    let styled = |level: usize| {
        let next = level + 1;
        format!(
            "<style>.c{level} {{ mask: url(\"#g{next}\") }}</style><mask id='g{level}'><g class='c{level}'/>\
             <g class='c{level}'/></mask>"
        )
    };
    let too_much =
        Err("it comes to more elements than are taken, since they are used again and again");
    for bomb in [doubling(40, &uses), doubling(40, &patterns), doubling(40, &styled)] {
        assert_eq!(vetted(&bomb).map(|_| ()), too_much);
    }
    // Also where there is nothing that they refer to, rules are looked at for each element.
    let rules = |count: usize| {
        let rules = "g { fill: url(#x) } .c { fill: url(#x) }".repeat(count);
        format!("<style>{rules}</style>{}", "<g/><path class='d'/>".repeat(count))
    };
    assert!(vetted(&rules(100)).is_ok());
    assert_eq!(vetted(&rules(3_000)).map(|_| ()), too_much);
    let points = "M".to_owned() + &"1 2 ".repeat(20_000);
    let marks = format!(
        "<marker id='m'>{}</marker><path d='{points}' marker-mid='url(#m)'/>",
        "<path/>".repeat(50)
    );
    assert_eq!(vetted(&marks).map(|_| ()), too_much);
    assert_eq!(
        vetted("<g id='a'><use href='#b'/></g><g id='b'><use href='#a'/></g>").map(|_| ()),
        Err("a part of it refers to itself")
    );
    assert!(vetted(&format!("{}{}", "<g>".repeat(1_100), "</g>".repeat(1_100))).is_err());
}

/// What an element has from those around it is counted, as the engine paints it.
///
/// Guarantee: pages/svg-bounds
#[test]
fn what_is_inherited_is_counted_each_time() {
    let points = "M".to_owned() + &"1 2 ".repeat(20_000);
    let mark = |id: &str| format!("<marker id='{id}'>{}</marker>", "<path/>".repeat(50));
    let path = format!("<path id='p' d='{points}'/>");
    let stops = format!("<linearGradient id='l'>{}</linearGradient>", "<stop/>".repeat(2_000));
    let rects = "<rect/>".repeat(2_000);
    let masks = |part: &str| -> String {
        let level = |level: usize| {
            let part = part.replace('N', &(level + 1).to_string());
            format!("<mask id='g{level}'>{part}</mask>")
        };
        (0..40).map(level).collect()
    };
    for body in [
        format!("{}<g marker-mid='url(#m)'><g>{path}</g></g>", mark("m")),
        format!("{}<g style='marker:url(#m)'>{path}</g>", mark("m")),
        format!("<style>.c{{marker:url(#m)}}</style>{}<g class='c'>{path}</g>", mark("m")),
        format!(
            "{}<g marker-mid='url(#m)'><path marker-mid='inherit' d='{points}'/></g>",
            mark("m")
        ),
        format!("{}<defs>{path}</defs><g marker-mid='url(#m)'><use href='#p'/></g>", mark("m")),
        // In a mark, a mask or a filter within the element that names it.
        format!("{}<g marker-mid='url(#m)'><marker id='n'>{path}</marker></g>", mark("m")),
        format!("{}<g marker-mid='url(#m)'><mask id='n'>{path}</mask></g>", mark("m")),
        format!("{}<g marker-mid='url(#m)'><defs>{path}</defs></g><feImage href='#p'/>", mark("m")),
        format!("{stops}<g fill='url(#l)'>{rects}</g>"),
        format!("{stops}<g style='stroke:url(#l)'><g stroke='inherit'>{rects}</g></g>"),
        masks("<g mask='url(#gN)'><g mask='inherit'/></g>"),
        masks("<g style='mask:url(#gN)'><g style='mask:inherit'/></g>"),
        "<style>.i{mask:inherit}</style>".to_owned()
            + &masks("<g mask='url(#gN)'><g class='i'/></g>"),
    ] {
        let start: String = body.chars().take(200).collect();
        assert_eq!(vetted(&body).map(|_| ()), Err(TOO_OFTEN), "{start}");
    }
    let used = "<clipPath id='c'/><g id='g' clip-path='inherit'/>";
    assert!(vetted(&format!("{used}<use href='#g' clip-path='url(#c)'/>")).is_err());
    // What is named around what it is in is no circle, and ends of lines are two.
    let line = "<path d='M0 0h1'/>";
    for body in [
        format!("<g marker-mid='url(#m)'><marker id='m'>{line}</marker>{line}</g>"),
        format!(
            "<g style='marker-start:url(#m);marker-end:url(#n)'><marker id='m'>{line}</marker>\
             <marker id='n'>{line}</marker>{line}</g>"
        ),
        format!("{}<g marker-start='url(#m)' marker-end='url(#m)'>{path}</g>", mark("m")),
        format!("{}{path}<g marker-mid='url(#m)'>{line}</g>", mark("m")),
        format!("{stops}<g fill='url(#l)'><rect/></g>{rects}"),
        "<g clip-path='url(#c)'><clipPath id='c' clip-path='inherit'/><g clip-path='inherit'/></g>"
            .to_owned(),
        format!("{used}<use href='#g'/>"),
    ] {
        let start: String = body.chars().take(200).collect();
        assert!(vetted(&body).is_ok(), "{start}");
    }
}

/// What the engine finds is counted, however it is written.
///
/// Guarantee: pages/svg-bounds
#[test]
fn references_are_counted_in_every_spelling() {
    // `L` is a level and `N` the next one, which each level has twice.
    let bomb = |written: &str| -> String {
        let level = |level: usize| {
            written.replace('L', &level.to_string()).replace('N', &(level + 1).to_string())
        };
        (0..40).map(level).collect()
    };
    let mask = |id: &str, attribute: &str, sheet: &str| {
        let part = format!("<g class='cL \u{2605}L' {attribute}/>");
        format!("<style>{sheet}</style><mask {id}>{part}{part}</mask>")
    };
    let foreign = "xmlns:z='urn:z' z:id='o' id='gL'";
    for (id, attribute, sheet) in [
        ("id='gL'", "mask='url(#gN)'", ""),
        ("id='gL'", "mask=\"url('#gN ')\"", ""),
        ("id='gL'", "mask=\"url( ' #gN' )\"", ""),
        ("id='a)gL'", "mask=\"url('#a)gN')\"", ""),
        ("id='gL'", "style='/*url(#*/mask:url(#gN)'", ""),
        (foreign, "mask='url(#gN)'", ""),
        ("id='gL'", "", ".cL{/*}*/mask:url(#gN)}"),
        ("id='gL'", "", ".cL{mask:url(#gN);x:\"{\"}"),
        ("id='gL'", "", ".cL/}.d{mask:url(#gN)}"),
        ("id='gL'", "", "a,.cL{mask:url(#gN);b{c:d}}"),
        ("id='gL'", "", ".\u{2605}L{mask:url(#gN)}"),
    ] {
        let written = mask(id, attribute, sheet);
        assert_eq!(vetted(&bomb(&written)).map(|_| ()), Err(TOO_OFTEN), "{written}");
    }
    // To `url()` the last one of a name counts, to `href` the first one.
    let plain = mask("id='gL'", "mask='url(#gN)'", "");
    let twice = [bomb("<g id='gL'/>"), bomb(&plain)];
    assert_eq!(vetted(&twice.concat()).map(|_| ()), Err(TOO_OFTEN));
    // What is written in the place of a pattern is a class as well.
    let written = mask("id='gL'", "", ".none{mask:url(#gN)}");
    let replaced = written.replace("class='", "class='url(#p) ");
    assert!(vetted(&bomb(&replaced)).is_ok());
    let pattern = "<pattern id='p'/>".to_owned();
    assert!(vetted(&(pattern + &bomb(&replaced))).is_err());
    let long = "a".repeat(ID_BYTES_MAX + 1);
    assert!(vetted(&format!("<g id='{long}'/>")).is_err());
}

/// A style sheet is not read where that takes long.
///
/// Guarantee: pages/svg-bounds
#[test]
fn style_sheets_are_bounded_before_they_are_read() {
    let many = format!("{} {{{}fill:url(#a)}}", "a,".repeat(10_000), "b:c;".repeat(10_000));
    assert!(rules_of(&many, &mut 0).is_err());
    let long = "a{fill:url(#a)}".repeat(20_000);
    assert!(rules_of(&long, &mut 0).is_err());
    assert!(rules_of(&format!("a{}{{}}", "/**/".repeat(2_000)), &mut 0).is_err());
    let sheets = rules_of("a, .b > #c, [d='e'] { fill: url(#f) } g { h: i }", &mut 0).unwrap();
    let rules = sheets.rules;
    let found: Vec<_> = rules.iter().map(|rule| (rule.word.as_deref(), &rule.ids[..])).collect();
    assert_eq!(found.len(), 3);
    for word in [Some("a"), Some("c"), None] {
        assert!(found.contains(&(word, &[("f", false)][..])), "{found:?}");
    }
    let steps: Vec<_> =
        sheets.looks.iter().map(|rule| (rule.word.as_deref(), rule.steps)).collect();
    assert_eq!(steps, [(Some("a"), 0), (Some("g"), 0), (None, 0), (Some("c"), 1)]);
    // Behind each number, and within the style of an element as well.
    let numbers = "1 ".repeat(200_000);
    assert!(rules_of(&format!("a{{b:{numbers}}}"), &mut 0).is_err());
    let of_element = vetted(&format!("<g style='b:{numbers}'/>")).map(|_| ());
    assert_eq!(of_element, Err(TOO_MANY_RULES));
    for numbers in ["/**/1", "+1"] {
        let style = format!("<g style='b:{}'/>", numbers.repeat(100_000));
        assert_eq!(vetted(&style).map(|_| ()), Err(TOO_MANY_RULES), "{numbers}");
    }
    // A font within it has signs and digits, but no numbers.
    let font = "Ab0/9Z+aQ8".repeat(100_000);
    let face = format!("@font-face{{src:url(data:font/woff2;base64,{font})}}");
    assert!(rules_of(&face, &mut 0).is_ok());
}

/// What a rule asks, and what it says, is counted where it is looked at.
///
/// Guarantee: pages/svg-bounds
#[test]
fn rules_cost_what_they_ask_and_say() {
    let asks = |count, back| Asks { count, back };
    for (selector, word, steps, first, all) in [
        ("path.a", "a", 0, asks(2, 0), asks(2, 0)),
        ("[d][d].a.b", "a", 0, asks(3, 0), asks(4, 0)),
        ("path.a + b:first-child", "b", 1, asks(2, 1), asks(5, 2)),
    ] {
        let sheet = format!("{selector}{{c:d;e:f}}");
        let looks = &rules_of(&sheet, &mut 0).unwrap().looks[0];
        assert_eq!((looks.word.as_deref(), looks.steps), (Some(word), steps), "{selector}");
        assert_eq!((looks.first, looks.all, looks.declarations), (first, all, 2), "{selector}");
        assert!(!looks.splits);
    }
    assert!(rules_of("[d~='a']{b:c}", &mut 0).unwrap().looks[0].splits);
    let with =
        |sheet: &str, body: &str| vetted(&format!("<style>{sheet}</style>{body}")).map(|_| ());
    let said = format!("g{{{}}}", "a:b;".repeat(5_000));
    assert_eq!(with(&said, &"<g/>".repeat(10_000)), Ok(()));
    assert_eq!(with(&said, &"<g/>".repeat(13_000)), Err(TOO_MANY_RULES));
    let asked = format!("{}{{b:c}}", ".a".repeat(100_000));
    assert_eq!(with(&asked, &"<g class='a'/>".repeat(9_000)), Ok(()));
    assert_eq!(with(&asked, &"<g class='a'/>".repeat(11_000)), Err(TOO_MANY_RULES));
    assert_eq!(with(&asked, &"<g class='b'/>".repeat(11_000)), Ok(()));
    let wide = |bytes: usize| {
        let used = format!("<g id='g' class='{}'/>", "x".repeat(bytes));
        with(&"a{b:c}".repeat(5_000), &(used + &"<use href='#g'/>".repeat(200)))
    };
    assert_eq!((wide(640), wide(64_000)), (Ok(()), Err(TOO_MANY_RULES)));
}

/// What is beside an element is as far away as there are nodes between them.
///
/// Guarantee: pages/svg-bounds
#[test]
fn steps_beside_elements_are_bounded() {
    let beside =
        |steps: usize| rules_of(&format!("{}g{{a:b}}", "g+".repeat(steps)), &mut 0).is_ok();
    assert!(beside(60) && !beside(100));
    let with = |rule: &str, comments: usize| {
        let (rules, comments) = (rule.repeat(2_600), "<!---->".repeat(comments));
        vetted(&format!("<style>{rules}</style>{comments}{}", "<g/>".repeat(20))).map(|_| ())
    };
    for rule in ["g+g{a:b}", "g:first-child{a:b}"] {
        assert_eq!(with(rule, 10), Ok(()), "{rule}");
        assert_eq!(with(rule, 20_000), Err(TOO_MANY_RULES), "{rule}");
    }
    assert_eq!(with("g g{a:b}", 20_000), Ok(()));
}

/// Selectors look at all around an element, in all ways.
///
/// Guarantee: pages/svg-bounds
#[test]
fn steps_of_selectors_are_bounded() {
    let nested = |steps: usize, depth: usize| {
        let selector = "g ".repeat(steps);
        format!(
            "<style>q {selector}rect{{fill:red}}</style>{}<rect/>{}",
            "<g>".repeat(depth),
            "</g>".repeat(depth)
        )
    };
    assert!(vetted(&nested(2, 100)).is_ok() && vetted(&nested(6, 20)).is_ok());
    // One that goes on from each element to one alone is looked at once.
    assert!(vetted(&nested(9, 100).replace("rect{", "circle{")).is_ok());
    assert_eq!(vetted(&nested(9, 100)).map(|_| ()), Err(TOO_MANY_RULES));
    assert_eq!(vetted(&nested(5_000, 900)).map(|_| ()), Err(TOO_MANY_RULES));
    let used = format!("<g id='u'>{}</g>", "<use href='#r'/>".repeat(2_000));
    let body = "<rect id='r' class='c'/>".to_owned() + &used + &"<use href='#u'/>".repeat(100);
    let sheet = format!("<style>{}</style>", "a{b:c}".repeat(5_000));
    assert!(vetted(&body).is_ok());
    assert_eq!(vetted(&(sheet + &body)).map(|_| ()), Err(TOO_MANY_RULES));
}

/// An arc is made of more curves the larger it is, before any of them is painted.
///
/// Guarantee: pages/svg-bounds
#[test]
fn arcs_are_bounded_before_they_are_made() {
    let path = |data: &str| vetted(&format!("<path d='{data}'/>")).map(|_| ());
    for data in [
        "M0 0A1e40 1e40 0 1 1 9e39 9e39",
        "m5 5a1 1 0 0 0 1e60 0",
        "M0 0h1e60a1e-4 9 0 0 0-1e60 9",
        "M0 0a9 9 0 0 0 0 1e-200",
    ] {
        assert_eq!(path(data), Err(TOO_LARGE_ARC), "{data}");
    }
    for (data, segments, of_arcs) in [
        ("M3.5 8a.5.5 0 01.5-.5h8a.5.5 0 010 1H4a.5.5 0 01-.5-.5z", 8, 4),
        ("M0 0A1e9 1e9 0 0 1 5 5", 2, 1),
        ("M0 0A0 5 0 0 1 5 5l1 1x a9e99 9 0 0 0 9 9", 3, 1),
        ("M0 0zh1zza1 1 0 0 0 1 1", 7, 1),
        ("M0 0a1e308 1e308 0 1 1 1e308 1e308", 1, 0),
        ("M1 1m2 2H3V4h5v6L1 2l3 4C1 2 3 4 5 6s1 2 3 4q1 2 3 4t1 2", 12, 0),
    ] {
        let size = size_of_path(data).unwrap();
        assert_eq!((size.segments, size.of_arcs), (segments, of_arcs), "{data}");
    }
    // What comes to nothing is passed over by a call.
    assert_eq!(path(&format!("M0 0{}", "z ".repeat(5_000))), Err(TOO_MANY_EMPTY));
    assert_eq!(path(&format!("M0 0{}", "a1e30 1e30 0 0 1 1 1".repeat(5_000))), Err(TOO_MANY_EMPTY));
    assert_eq!(path(&"M0 0zz".repeat(5_000)), Ok(()));
    assert_eq!(path(&format!("M0 0{}", "h1".repeat(1_000_001))), Err(TOO_MANY_POINTS));
}

/// The curves of circles count, and marks at each of them, however their radii are written.
///
/// Guarantee: pages/svg-bounds
#[test]
fn curves_of_circles_are_counted() {
    let round = |one: &str, count: usize| vetted(&one.repeat(count)).map(|_| ());
    for one in [
        "<circle r='1e36'/>",
        "<circle r='1e34in'/>",
        "<ellipse rx='1' ry='-1e36'/>",
        "<rect width='9' height='9' ry='1e36'/>",
        "<circle r='1e36%'/>",
        "<svg viewBox='0 0 1e18 1e18'><circle r='1e20%'/></svg>",
        "<svg viewBox='0 0 +1e18+1e18'><circle r='1e20%'/></svg>",
        "<svg viewBox='0 0 .1e19.1e19'><circle r='1e20%'/></svg>",
        "<g style='font:1e18pxa'><circle r='1e18em'/></g>",
        "<g style='font:1e18emb'><circle r='1e18em'/></g>",
        "<g font-size='1e18'><circle r='1e18em'/></g>",
        "<g style='font:1e18px/1 a'><circle r='1e18em'/></g>",
        "<style>g{font-size:1e36px}</style><g><circle r='1em'/></g>",
    ] {
        assert_eq!(round(one, 100), Err(TOO_OFTEN), "{one}");
    }
    // Each of them is a part of the one around it.
    let inner = "<circle r='50%'/>".repeat(100);
    let nested = |open: &str, close: &str, count| {
        vetted(&(open.repeat(count) + &inner + &close.repeat(count))).map(|_| ())
    };
    assert_eq!(nested("<svg width='9e5%' height='9e5%'>", "</svg>", 9), Err(TOO_OFTEN));
    assert_eq!(nested("<svg width='100%' height='50%'>", "</svg>", 99), Ok(()));
    assert_eq!(nested("<g font-size='120%'>", "</g>", 20), Ok(()));
    let badge = "<rect rx='3' width='90' height='20'/><circle cx='50%' cy='50%' r='45%'/>\
                 <text font-size='1.2em'>a</text><ellipse rx='2em' ry='1e3'/>";
    assert_eq!(round(badge, 500), Ok(()));
    // Units that the engine does not know are no part of anything.
    let others = "<svg width='100vw' height='50vh' style='font-size:16rem;font-family:-apple-system'>\
        <g font-size='1.2ch'><circle r='50%'/><rect rx='1em'/></g></svg>";
    assert_eq!(round(others, 500), Ok(()));
    let marks = |radius: &str| {
        let mark = format!("<marker id='m'>{}</marker>", "<path/>".repeat(50));
        vetted(&format!("{mark}<circle r='{radius}' marker-mid='url(#m)'/>")).map(|_| ())
    };
    assert_eq!((marks("9"), marks("1e30")), (Ok(()), Err(TOO_OFTEN)));
    let arcs = "M0 0".to_owned() + &"a1e12 1e12 0 1 1 1e12 1e12".repeat(300);
    let mark = format!("<marker id='m'>{}</marker>", "<path/>".repeat(30));
    let marked = format!("{mark}<path d='{arcs}' marker-mid='url(#m)'/>");
    assert_eq!(vetted(&marked).map(|_| ()), Err(TOO_OFTEN));
}

/// A rule for all lines is one for those within a mark, which has itself not.
///
/// Guarantee: pages/svg-bounds
#[test]
fn marks_of_all_lines_are_no_circle() {
    let line = "<path d='M0 0h1v1'/>";
    let mark = |id: &str, body: &str| format!("<marker id='{id}'>{body}</marker>");
    for body in [
        format!("<style>path{{marker-end:url(#m)}}</style>{}{line}", mark("m", line)),
        format!("<style>path{{marker:url(#m)}}</style>{}{line}", mark("m", line)),
        format!(
            "<style>path{{marker-start:url(#m);marker-end:url(#n)}}</style>{}{}{line}",
            mark("m", line),
            mark("n", line)
        ),
        mark("m", "<g style='marker-end:url(#m)'><path d='M0 0h1'/></g>") + line,
    ] {
        assert!(vetted(&body).is_ok(), "{body}");
    }
    // Elsewhere such a line has it at each point.
    let points = "M".to_owned() + &"1 2 ".repeat(20_000);
    let long = format!("<path id='p' d='{points}' style='marker-mid:url(#m)'/>");
    let marks = mark("m", &("<path/>".repeat(50) + &long));
    assert_eq!(vetted(&(marks + "<use href='#p'/>")).map(|_| ()), Err(TOO_OFTEN));
    // At its ends it has one each, by an attribute, a style or a rule.
    let line_of = |one: &str, style: &str, count: usize| {
        let path = format!("<path class='e' d='M0 0{}' {style}/>", one.repeat(100));
        vetted(&(mark("m", &"<path/>".repeat(50)) + &path.repeat(count))).map(|_| ())
    };
    for style in ["marker-end='url(#m)'", "style='fill:none;marker-end : url(#m)'"] {
        assert_eq!(line_of("h1", style, 800), Ok(()), "{style}");
    }
    for style in ["marker-mid='url(#m)'", "style='marker-mid:/*;marker-end:*/url(#m)'"] {
        assert_eq!(line_of("h1", style, 800), Err(TOO_OFTEN), "{style}");
        assert_eq!(line_of("C1 2 3 4 5 6", style, 80), Ok(()), "{style}");
    }
    let by_rule = |rule: &str| {
        let lines = format!("<path class='e' d='M0 0{}'/>", "h1".repeat(100)).repeat(800);
        let marks = mark("m", &"<path/>".repeat(50));
        vetted(&format!("<style>{rule}</style>{marks}{lines}")).map(|_| ())
    };
    assert_eq!(by_rule(".e{marker-start:url(#m);marker-end:url(#m)}"), Ok(()));
    assert_eq!(by_rule(".e{marker:url(#m)}"), Err(TOO_OFTEN));
    assert_eq!(by_rule("path.e{marker-mid:url(#m)}"), Err(TOO_OFTEN));
    assert_eq!(by_rule("path.f{marker-mid:url(#m)}"), Ok(()));
    // Marks of each other come to as many as there are ways through them.
    let many: String = (0..12).map(|n| mark(&format!("m{n}"), &line.repeat(9))).collect();
    let rules: String = (0..12).map(|n| format!("path{{marker-end:url(#m{n})}}")).collect();
    let all = format!("<style>{rules}</style>{many}{line}");
    assert_eq!(vetted(&all).map(|_| ()), Err(TOO_OFTEN));
    // Movement and scripts lead nowhere.
    let moved = "<g id='a'><animateTransform href='#a'/><set x:href='#a'/><script href='#a'/></g>";
    assert!(vetted(moved).is_ok());
}

/// Text and images are counted as often as they are painted, and depth through all references.
///
/// Guarantee: pages/svg-bounds
#[test]
fn what_is_used_has_its_text_images_and_depth() {
    let text = |letters: usize| format!("<text id='t'>{}</text>", "a".repeat(letters));
    let uses = |count: usize| "<use href='#t'/>".repeat(count);
    assert!(vetted(&(text(1_000) + &uses(1_000))).is_ok());
    assert_eq!(vetted(&(text(20_000) + &uses(1_000))).map(|_| ()), Err(TOO_OFTEN));
    assert_eq!(vetted(&text(200_000)).map(|_| ()), Err(TOO_OFTEN));
    assert!(vetted(&text(200_000).replace("text", "desc")).is_ok());
    let others = format!("<desc id='d'>{}</desc>", "a".repeat(50_000));
    let named = format!("{others}<text>{}</text>", "<tref href='#d'/>".repeat(10));
    assert_eq!(vetted(&named).map(|_| ()), Err(TOO_OFTEN));
    // For each one the engine looks through the whole picture.
    let named = |count: usize| {
        let text = format!("<text>{}</text>", "<tref href='#d'/>".repeat(count));
        vetted(&("<desc id='d'/>".to_owned() + &text)).map(|_| ())
    };
    assert_eq!((named(1_000), named(5_000)), (Ok(()), Err(TOO_OFTEN)));
    let line = format!("<path id='t' d='M0 0{}'/>", "h1".repeat(100_000));
    assert!(vetted(&(line.clone() + &uses(30))).is_ok());
    assert_eq!(vetted(&(line + &uses(100))).map(|_| ()), Err(TOO_OFTEN));
    let image = format!("<defs><image id='t' href='{PNG}'/></defs>");
    assert_eq!(vetted(&image).unwrap().1.pixels, 6);
    assert_eq!(vetted(&(image.clone() + &uses(7))).unwrap().1.pixels, 42);
    let marks = format!(
        "<marker id='m'><image href='{PNG}'/></marker><path d='M0 0h1h1h1' marker-mid='url(#m)'/>"
    );
    assert!(vetted(&marks).unwrap().1.pixels >= 12);
    let deep = |number: usize| {
        let (open, close) = ("<g>".repeat(300), "</g>".repeat(300));
        let next = format!("<g mask='url(#k{})'/>", number + 1);
        format!("<mask id='k{number}'>{open}{next}{close}</mask>")
    };
    assert!(vetted(&(0..2).map(deep).collect::<String>()).is_ok());
    assert_eq!(vetted(&(0..5).map(deep).collect::<String>()).map(|_| ()), Err(TOO_DEEP));
}

/// An element with many attributes is not given to the XML parser.
///
/// Guarantee: pages/svg-bounds
#[test]
fn attributes_are_bounded_before_they_are_read() {
    let attributes =
        |count: usize| -> String { (0..count).map(|n| format!(" a{n}='>'")).collect() };
    assert!(vetted(&format!("<g{}/>", attributes(900))).is_ok());
    assert_eq!(vetted(&format!("<g{}/>", attributes(1_100))).map(|_| ()), Err(TOO_MANY_ATTRIBUTES));
    // Where no mark of an element is, there is no attribute.
    let quoted = "''".repeat(2_000);
    let script =
        format!("<script><![CDATA[if (a<b) {{ {quoted} }}]]></script><!-- <g {{ {quoted} -->");
    let others = format!("<g a=\"{quoted}\">{quoted}</g><?a {quoted}?>");
    assert!(vetted(&(script + &others)).is_ok());
}

/// Namespaces are compared with all that are known around them.
///
/// Guarantee: pages/svg-bounds
#[test]
fn namespaces_are_bounded_before_they_are_compared() {
    let names =
        |count: usize| -> String { (0..count).map(|n| format!(" xmlns:a{n}='u'")).collect() };
    let within = |count: usize, one: &str, often: usize| {
        vetted(&format!("<g{}>{}</g>", names(count), one.repeat(often))).map(|_| ())
    };
    let own = "<g xmlns='http://www.w3.org/2000/svg'/>";
    assert_eq!(within(0, own, 50_000), Ok(()));
    assert_eq!(within(15, "<g xmlns:b='u'/>", 5_000), Ok(()));
    assert_eq!(within(200, "<g xmlns:b='u'/>", 30_000), Err(TOO_MANY_NAMESPACES));
    // An entity may be there any number of times.
    let with_entity = |count: usize| {
        let text = format!(
            "<!DOCTYPE svg [<!ENTITY a 'u'>]><svg xmlns='http://www.w3.org/2000/svg'{}/>",
            names(count)
        );
        vet_file(text.as_bytes(), 1 << 20).map(|_| ())
    };
    assert_eq!((with_entity(15), with_entity(50)), (Ok(()), Err(TOO_MANY_NAMESPACES)));
}

/// Nothing but references is replaced: no quotation mark, and no markup.
///
/// Guarantee: pages/svg-bounds
#[test]
fn replaced_patterns_uncover_no_markup() {
    for body in [
        "<pattern id='p&lt;!--'/><pattern id='--&gt;'/><text>url(#p<!--)<image href='/a.png'/>url(#-->)</text>",
        "<pattern id='p\" b='/><g a=\"url(#p\" b=')' c='\" href=\"x\" '/>",
    ] {
        let (text, _) = vetted(body).unwrap();
        assert!(text.contains(body), "{text}");
    }
}

/// Guarantee: pages/svg-bounds
#[test]
fn entities_and_compressed_bytes_are_bounded() {
    let entity = |value: &str, body: &str| {
        let text = format!(
            "<!DOCTYPE svg [<!ENTITY a '{value}'>]><svg xmlns='http://www.w3.org/2000/svg'><text>{body}</text></svg>"
        );
        vet_file(text.as_bytes(), 1 << 24).map(|_| ())
    };
    assert_eq!(entity("http://ns.adobe.com/", "&a;&a;"), Ok(()));
    assert!(entity(&"x".repeat(100_000), &"&a;".repeat(100_000)).is_err());
    let laughs: String = (1..10)
        .map(|n| format!("<!ENTITY l{n} '{}'>", format!("&l{};", n - 1).repeat(10)))
        .collect();
    let text = format!("<!DOCTYPE svg [<!ENTITY l0 'lol'>{laughs}]><svg>&l9;</svg>");
    // The parser refuses it, here as in the engine.
    assert_eq!(vet_file(text.as_bytes(), 1 << 20), Ok(None));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &vec![b' '; 4 << 20]).unwrap();
    assert_eq!(
        vet_file(&packed.finish().unwrap(), 1 << 20).map(|_| ()),
        Err("unpacked it has more bytes than are taken")
    );
}

/// Guarantee: pages/svg
#[test]
fn patterns_are_not_painted_and_said() {
    let (text, found) = vetted(
        "<pattern id='p'><path/></pattern><linearGradient id='l'/><rect fill='url(#p)'/>\
         <rect style=\"fill: url('#p'); stroke: url(#l)\"/><style>a { fill: url(#p) }</style>",
    )
    .unwrap();
    assert!(
        !text.contains("#p") && text.contains("url(#l)") && text.contains("fill='none   '"),
        "{text}"
    );
    assert!(found.lacks.contains("patterns"));
}

#[test]
fn letters_of_other_encodings_are_read() {
    let latin = b"<?xml version='1.0' encoding='iso-8859-1'?><svg xmlns='http://www.w3.org/2000/svg'><text>\xE9</text></svg>";
    let (bytes, found) = vet_file(latin, 1 << 20).unwrap().unwrap();
    assert!(String::from_utf8(bytes).unwrap().contains('\u{e9}') && found.has_text);
    let wide: Vec<u8> = "\u{feff}<svg xmlns='http://www.w3.org/2000/svg'/>"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert!(may_be(&wide) && vet_file(&wide, 1 << 20).unwrap().is_some());
}
