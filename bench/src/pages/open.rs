//! Opening a document: from the name of a heap in the pool to the name of the document's element
//! `html`, each page in a heap of its own. Closing is outside.

use std::hint::black_box;
use std::io::{self, Error};
use std::time::Instant;

use super::list::Page;
use super::{Shelf, options};
use crate::heap::ground::{Ground, Store};
use crate::stats::Series;

/// An open is short: so many for each run.
const OPENS_PER_RUN: usize = 20;

/// Of each page the microseconds of the whole, and those of the document alone in a heap that is
/// open.
pub(super) fn run(
    ground: &Ground,
    pages: &[Page],
    runs: usize,
) -> io::Result<Vec<(Series, Series)>> {
    let home = ground.home(Store::Memory)?;
    for page in pages {
        let mut shelf = Shelf::create(&home, page.name)?;
        shelf.documents.parse(page.name, &page.source[..], &options()).map_err(Error::other)?;
        shelf.close()?;
    }
    let mut opened = vec![(Series::default(), Series::default()); pages.len()];
    for round in 0..=runs * OPENS_PER_RUN {
        for (page, (whole, inner)) in pages.iter().zip(&mut opened) {
            let started = Instant::now();
            let shelf = Shelf::open_to_read(&home, page.name)?;
            let heap_open = started.elapsed();
            let document = shelf.documents.open(black_box(page.name)).map_err(Error::other)?;
            let is_there =
                black_box(document.root_element().and_then(|root| root.name())) == Some("html");
            let all = started.elapsed();
            shelf.close()?;
            if !is_there {
                return Err(Error::other(format!(
                    "the page {} is not there when it is opened again",
                    page.name
                )));
            }
            // The first time is that of cold caches.
            if round > 0 {
                whole.push(all.as_secs_f64() * 1e6);
                inner.push((all - heap_open).as_secs_f64() * 1e6);
            }
        }
    }
    Ok(opened)
}
