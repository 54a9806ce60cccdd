//! Keeps a page and prints where its links lead: parsed the first time, and from then on read where
//! it lies. `cargo run -p holdfast-dom --example links -- index.html`
#![allow(dead_code, reason = "a test runs `links` instead of `main`")]

use std::error::Error;
use std::fs::File;

use holdfast_dom::{Documents, DomError, ParseOptions, Selector};
use holdfast_native_heap::open_data_heap;
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("links FILE")?;
    print!("{}", links(Places::from_env()?, &path)?);
    Ok(())
}

pub(crate) fn links(places: Places, path: &str) -> Result<String, Box<dyn Error>> {
    let key = OwnerKey::load_or_create(&places, "default")?;
    let region =
        NameSpace::new(places).open_or_create(&RegionName::parse("pages")?, &key, 1 << 30)?;
    let (heap, region) = open_data_heap(region)?;
    let mut documents = Documents::new(heap);
    let mut said = String::new();
    if let Err(DomError::NoSuchDocument { .. }) = documents.open(path) {
        let report = documents.parse(path, File::open(path)?, &ParseOptions::default())?;
        said += &format!("parsed: {} nodes\n", report.nodes);
    }
    let page = documents.open(path)?;
    let found = page.select(&Selector::parse("a[href]")?)?;
    for link in &found {
        said += &format!("{} -> {}\n", link.text()?, link.attribute("href").unwrap_or_default());
    }
    let marked: Vec<u32> = found.iter().map(|link| link.id()).collect();
    // All of them, or none.
    documents.edit(path, |edit| -> Result<(), DomError> {
        for link in &marked {
            edit.set_attribute(*link, "class", "visited")?;
        }
        Ok(())
    })?;
    let visited = documents.open(path)?.select(&Selector::parse("a.visited")?)?.len();
    said += &format!("{visited} links visited\n");
    drop(documents.into_heap().close());
    region.close()?;
    Ok(said)
}
