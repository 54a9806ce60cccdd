//! The pages: those that `bench/pages.txt` names, as `xtask/setup.sh` got them: with the style
//! sheets and images of their packages, each where it lies in its package. And those of
//! `bench/collection.txt`: articles of the web, alone, as test collections have them.

use std::fs;
use std::io::{self, Error};
use std::path::PathBuf;

/// Names, packages and paths, from small to large.
const LIST: &str = include_str!("../../pages.txt");
/// The same of the collection, with modules of Go in the place of packages.
const COLLECTION: &str = include_str!("../../collection.txt");
/// Articles of the collection, of as many houses, that stand beside the list where a page is opened
/// again: the list has documentation alone.
const ARTICLES: [&str; 8] =
    ["ars-1", "bbc-1", "guardian-1", "heise", "lwn-1", "nytimes-1", "wapo-1", "wikipedia"];
/// Where the contents of the packages are.
const FOLDER: &str = "HOLDFAST_PAGES";

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) name: &'static str,
    /// Below [`site`].
    pub(super) path: &'static str,
    pub(super) source: Vec<u8>,
}

/// The folder that has the pages, and what they ask for.
pub(super) fn site() -> PathBuf {
    PathBuf::from(std::env::var_os(FOLDER).unwrap_or_default())
}

/// The pages that are there, by size, and what is said of those that are not.
///
/// # Errors
/// When there is none.
pub(super) fn pages() -> io::Result<(Vec<Page>, Vec<String>)> {
    read(LIST, |_| true)
}

/// Articles to be measured like [`pages`]; the names of the two are different ones.
///
/// # Errors
/// When there is none.
pub(super) fn articles() -> io::Result<(Vec<Page>, Vec<String>)> {
    read(COLLECTION, |name| ARTICLES.contains(&name))
}

/// The same of the collection.
///
/// # Errors
/// When there is none.
pub(super) fn collection() -> io::Result<(Vec<Page>, Vec<String>)> {
    read(COLLECTION, |_| true)
}

fn read(
    list: &'static str,
    is_wanted: impl Fn(&str) -> bool,
) -> io::Result<(Vec<Page>, Vec<String>)> {
    let site = site();
    let (mut pages, mut missing) = (Vec::new(), Vec::new());
    for (name, package, path) in listed(list).filter(|(name, ..)| is_wanted(name)) {
        match fs::read(site.join(path)) {
            Ok(source) => pages.push(Page { name, path, source }),
            Err(_) => missing.push(format!("the page {name} of the package {package}")),
        }
    }
    if pages.is_empty() {
        return Err(Error::other(
            "there are no pages; `cargo xtask bench pages` gets them where there is apt-get, and says where they are",
        ));
    }
    pages.sort_by_key(|page| page.source.len());
    Ok((pages, missing))
}

fn listed(list: &'static str) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?, words.next()?))
    })
}

/// Names and sizes, for a person.
pub(super) fn told(pages: &[Page]) -> String {
    let told: Vec<String> = pages
        .iter()
        .map(|page| format!("{} {:.0} KB", page.name, page.source.len() as f64 / 1e3))
        .collect();
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The articles are in the collection, and their keys are not those of other pages.
    #[test]
    fn articles_are_in_the_collection_alone() {
        let names = |list| listed(list).map(|(name, ..)| name).collect::<Vec<&str>>();
        let (pages, collection) = (names(LIST), names(COLLECTION));
        for article in ARTICLES {
            assert!(collection.contains(&article) && !pages.contains(&article), "{article}");
        }
    }

    /// Every page of the list has its own name, a package and a path.
    #[test]
    fn each_listed_page_has_a_unique_name() {
        for (list, least) in [(LIST, 16), (COLLECTION, 100)] {
            let mut names: Vec<&str> = listed(list).map(|(name, ..)| name).collect();
            assert!(names.len() >= least);
            names.sort_unstable();
            names.dedup();
            let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(names.len(), lines.len());
            assert!(
                lines
                    .iter()
                    .all(|line| line.split_whitespace().count() == 3 && line.ends_with(".html"))
            );
        }
    }
}
