//! Addresses of pages: files and folders of this machine, and what servers have.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use blitz_traits::net::Url;

use crate::error::PageError;

/// Where a page is. A place in it (`#place`) is kept apart: it is the same page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    url: Url,
    fragment: Option<String>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.url))
    }
}

impl Address {
    /// A file's or a folder's name, or an address (`file:`, `http:`, `https:`). A place in a file
    /// whose name is given may follow it (`page.html#place`).
    ///
    /// # Errors
    /// [`PageError::Address`].
    pub fn parse(text: &str) -> Result<Address, PageError> {
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "file" | "http" | "https") => Address::of(url),
            Err(_) if text.starts_with("http://") || text.starts_with("https://") => {
                Err(wrong(text, "it is no address"))
            }
            Ok(_) if text.contains("://") => Err(wrong(
                text,
                "only files and addresses that begin with http: or https: are opened",
            )),
            _ => Address::of_path(text),
        }
    }

    /// What an address in this page leads to, relative to it or not. A page from the network leads
    /// to no files.
    ///
    /// # Errors
    /// [`PageError::Address`].
    pub fn join(&self, href: &str) -> Result<Address, PageError> {
        self.join_from(&self.url, href)
    }

    /// The same relative to `base`, as the page says. Whether files may be opened depends on where
    /// the page is, not on its base.
    pub(crate) fn join_from(&self, base: &Url, href: &str) -> Result<Address, PageError> {
        let url = base.join(href.trim()).map_err(|_| wrong(href, "it is no address"))?;
        if url.scheme() == "file" && self.is_of_network() {
            return Err(wrong(
                href,
                "a page from the network leads to no files; open it by its name",
            ));
        }
        Address::of(url)
    }

    fn of(mut url: Url) -> Result<Address, PageError> {
        let fragment = url.fragment().map(str::to_owned);
        url.set_fragment(None);
        match url.scheme() {
            "file" => {
                url.set_query(None);
                let path = url
                    .to_file_path()
                    .map_err(|()| wrong(url.as_str(), "it does not name a file of this machine"))?;
                Ok(Address { url: of_file(&path, url.as_str())?, fragment })
            }
            "http" | "https" => {
                if !url.username().is_empty() || url.password().is_some() {
                    let hint =
                        "names and passwords in addresses are not taken, since addresses are kept";
                    return Err(wrong(url.as_str(), hint));
                }
                Ok(Address { url, fragment })
            }
            _ => {
                Err(wrong(url.as_str(), "only files and addresses of http: and https: are opened"))
            }
        }
    }

    fn of_path(text: &str) -> Result<Address, PageError> {
        let (path, fragment) = match text.rsplit_once('#') {
            // A name may have that sign in it.
            Some((path, fragment)) if !Path::new(text).exists() && Path::new(path).exists() => {
                (path, Some(fragment.to_owned()))
            }
            _ => (text, None),
        };
        Ok(Address { url: of_file(Path::new(path), text)?, fragment })
    }

    /// As an address, without a place.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The file or folder, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        if self.is_of_network() { None } else { self.url.to_file_path().ok() }
    }

    /// The place in it that is to be shown: what an element there has as its `id` or `name`.
    #[must_use]
    pub fn fragment(&self) -> Option<&str> {
        self.fragment.as_deref().filter(|fragment| !fragment.is_empty())
    }

    /// The page, from its top.
    pub(crate) fn without_fragment(&self) -> Address {
        Address { url: self.url.clone(), fragment: None }
    }

    /// Whether a server has it.
    #[must_use]
    pub fn is_of_network(&self) -> bool {
        self.url.scheme() != "file"
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
}

/// For people: an address in which a file has its name.
pub(crate) fn shown_text(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), |url| shown(&url))
}

/// For people: a file by its name.
pub(crate) fn shown(url: &Url) -> String {
    match url.to_file_path() {
        Ok(path) if url.scheme() == "file" => path.display().to_string(),
        _ => url.as_str().to_owned(),
    }
}

fn of_file(path: &Path, given: &str) -> Result<Url, PageError> {
    let path = std::path::absolute(path).map_err(|_| wrong(given, "it is no name of a file"))?;
    let path = without_steps_up(path);
    let url =
        if path.is_dir() { Url::from_directory_path(&path) } else { Url::from_file_path(&path) };
    url.map_err(|()| wrong(given, "it is no absolute path"))
}

/// Without `..`: in an address it takes away the name before it, and to the system it is what is
/// above the folder that this name leads to. What is not there stays as it is.
fn without_steps_up(path: PathBuf) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    let found = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => folder.canonicalize().map(|folder| folder.join(name)),
        _ => path.canonicalize(),
    };
    found.unwrap_or(path)
}

fn wrong(address: &str, reason: &'static str) -> PageError {
    PageError::Address { address: address.to_owned(), reason }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// Guarantee: pages/no-local-files
    #[test]
    fn addresses_are_files_folders_and_what_servers_have() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("a#b.html");
        std::fs::write(&page, "").unwrap();
        let parsed = Address::parse(page.to_str().unwrap()).unwrap();
        assert_eq!(
            (parsed.path(), parsed.fragment()),
            (Some(page.clone()), None),
            "a name may have a #"
        );
        let text = format!("{}#end", page.display());
        let parsed = Address::parse(&text).unwrap();
        assert_eq!((parsed.path(), parsed.fragment()), (Some(page), Some("end")));
        let folder = Address::parse(folder.path().to_str().unwrap()).unwrap();
        assert!(folder.as_str().ends_with('/'), "what is in it is relative to it: {folder:?}");
        assert!(folder.join("x.html").unwrap().path().unwrap().starts_with(folder.path().unwrap()));

        let page = Address::parse("http://example.org/a/b.html?q=1#c%20d").unwrap();
        assert_eq!(
            (page.as_str(), page.fragment()),
            ("http://example.org/a/b.html?q=1", Some("c%20d"))
        );
        assert_eq!(page.join("../x#y").unwrap().as_str(), "http://example.org/x");
        assert_eq!(page.path(), None);
        for refused in
            ["http://name:word@example.org/", "ftp://example.org/", "file://elsewhere/a", "http://"]
        {
            assert!(matches!(Address::parse(refused), Err(PageError::Address { .. })), "{refused}");
        }
        for refused in ["file:///etc/passwd", "javascript:1", "mailto:x@example.org", "http://"] {
            assert!(matches!(page.join(refused), Err(PageError::Address { .. })), "{refused}");
        }
    }

    /// Styles beside a page that was opened as `link/../page.html` were looked for elsewhere, and
    /// one page opened by several names was kept as often.
    ///
    /// Guarantee: pages/addresses
    #[test]
    fn steps_up_are_those_of_the_system() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("one/two")).unwrap();
        std::fs::create_dir(root.join("other")).unwrap();
        std::fs::write(root.join("one/a.html"), "").unwrap();
        std::os::unix::fs::symlink("../one/two", root.join("other/link")).unwrap();
        let parsed = |name: &str| Address::parse(root.join(name).to_str().unwrap()).unwrap();
        let page = parsed("other/link/../a.html");
        assert_eq!(page.join("b.css").unwrap().path(), Some(root.join("one/b.css")));
        for same in ["one/a.html", "one/two/../a.html", "other/../one/a.html"] {
            assert_eq!(parsed(same).as_str(), page.as_str(), "{same}");
        }
        assert_eq!(parsed("one/two/..").as_str(), parsed("one").as_str());
        assert_eq!(parsed("no/../a.html").path(), Some(root.join("no/../a.html")));
    }
}
