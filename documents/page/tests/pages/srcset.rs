//! Which of its images a page shows, and how large.

use holdfast_page::{StaleReason, Tier, View};

use crate::{Place, address, anew, is_drawn, png, view};

/// Images of two sizes and colours.
fn with_images() -> Place {
    let place = Place::new();
    place.write("a.png", png(40, 20, [200, 30, 30, 255]));
    place.write("b.png", png(80, 40, [30, 30, 200, 255]));
    place
}

/// A page with `srcset` looks as one that names the chosen image, in its size in CSS.
///
/// Guarantee: pages/images
#[test]
fn chosen_image_is_drawn_in_its_natural_size() {
    let place = with_images();
    let (one, two) = (view(300, 200), View::new(600, 400, 2000).unwrap());
    let a = "<img src=a.png>";
    for (view, page, same) in [
        (one, "<img srcset='a.png, b.png 2x'>", a),
        (two, "<img srcset='a.png, b.png 2x'>", "<img src=b.png width=40 height=20>"),
        (one, "<img srcset='b.png 2x'>", "<img src=b.png width=40 height=20>"),
        (one, "<img srcset='b.png 2x' style='height: 10px'>", "<img src=b.png height=10>"),
        (one, "<img srcset='b.png 2x' src=a.png>", a),
        (one, "<img src=gone.png srcset='a.png 40w, b.png 80w' sizes='40px'>", a),
        (one, "<img srcset='a.png 40w, b.png 80w' sizes='(width: 300px) 80px'>", "<img src=b.png>"),
        (one, "<img srcset='b.png 80w' sizes='0px'>", "<img src=b.png width=1 height=1>"),
        // As wide as the viewport, where nothing is said.
        (one, "<img srcset='a.png 40w, b.png 80w'>", "<img src=b.png width=300 height=150>"),
        (
            one,
            "<p style='width: 50px'><img srcset='b.png 80w' style='max-width: 100%'>",
            "<p style='width: 50px'><img src=b.png width=50>",
        ),
        (one, "<picture><source srcset=a.png><img src=b.png></picture>", a),
        (one, "<picture><source srcset=b.png media='(width: 1px)'><img src=a.png></picture>", a),
        (one, "<picture><source srcset=b.png type=image/avif><img src=a.png></picture>", a),
        (
            one,
            "<picture><source srcset=b.png width=20 height=30><img src=a.png width=5 height=6>",
            "<img src=b.png width=20 height=30>",
        ),
        // What is no address shows its text, as an image that is not there.
        (one, "<img srcset='http://[ 1x' alt=text>", "<img alt=text>"),
    ] {
        let made = anew(&place.write("a.html", format!("<!doctype html><body>{page}")), view);
        let expected = anew(&place.write("b.html", format!("<!doctype html><body>{same}")), view);
        assert!(is_drawn(&expected), "{same}");
        assert!(made == expected, "{page}");
    }
}

/// A page is made again when the image that it shows changes, and not when another one of its
/// `srcset` does.
///
/// Guarantee: pages/images
#[test]
fn page_depends_on_the_chosen_image_alone() {
    let place = with_images();
    let page = place.write("a.html", "<!doctype html><img srcset='a.png, b.png 2x'>");
    let view = view(300, 200);
    let first = place.open(&page, view);
    place.write("b.png", png(80, 40, [9, 99, 9, 255]));
    let again = place.open(&page, view);
    assert_eq!((again.tier, &again.stale), (Tier::Pixels, &None));
    assert!(again.pixels == first.pixels);
    let repainted = place.repainted(&page, view);
    assert!(repainted.tier == Tier::List && repainted.pixels == first.pixels);

    let image = place.write("a.png", png(40, 20, [99, 9, 9, 255]));
    let changed = StaleReason::Resource(address(&image).as_str().to_owned());
    let again = place.open(&page, view);
    assert_eq!(again.stale, Some(changed));
    assert!(again.pixels == anew(&page, view) && again.pixels != first.pixels);
}

/// A kept page with an image of another density looks as a new one, wherever it is scrolled.
///
/// Guarantee: pages/images
#[test]
fn kept_page_has_its_dense_image() {
    let place = with_images();
    let page = place.write(
        "a.html",
        "<!doctype html><img srcset='b.png 2x'><img srcset='a.png 40w' sizes=100vw>\
         <div style='height: 900px'></div><img srcset='b.png .5x' style='max-width: 90%'>",
    );
    crate::alike::compare(&place, &page, view(300, 200), &[0, 100, 5000]);
}
