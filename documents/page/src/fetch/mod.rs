//! The sources of pages and their resources: files, servers, an archive, a test.
//!
//! What it must not do: keep anything (that is the cache's part); decide what a page may ask for
//! (the loader's).

mod error;
mod files;
mod folder;
pub(crate) mod freshness;
mod sniff;
mod tls;
mod web;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

pub use blitz_traits::net::Url;
pub use error::FetchError;
pub use files::Files;
pub(crate) use files::read_file;
pub(crate) use folder::TIME_END_S;
pub(crate) use web::CONNECTIONS;
pub use web::Web;

/// Gives the bytes of addresses. It is asked from several threads at once.
pub trait Fetch: Send + Sync {
    /// The bytes of an address.
    ///
    /// # Errors
    /// [`FetchError`]. Half of what there is is an error, not less of it.
    fn fetch(&self, wanted: &FetchRequest<'_>) -> Result<FetchAnswer, FetchError>;
}

/// Asks a [`Fetch`], and believes neither that it heeds the bound nor that it never panics: it need
/// not be of this crate.
pub(crate) fn ask(from: &dyn Fetch, wanted: &FetchRequest<'_>) -> Result<FetchAnswer, FetchError> {
    let asked = catch_unwind(AssertUnwindSafe(|| from.fetch(wanted)));
    let answer = asked.map_err(|_| FetchError::Protocol {
        message: "asking it failed in this program".to_owned(),
    })??;
    match &answer {
        FetchAnswer::Bytes(fetched) if fetched.bytes.len() as u64 > wanted.bytes_max => {
            Err(FetchError::TooLarge { bytes_max: wanted.bytes_max })
        }
        FetchAnswer::Nothing(missing) if !matches!(missing.status, 404 | 410) => {
            Err(FetchError::NotFound)
        }
        _ => Ok(answer),
    }
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// The address, without a place in it.
    pub url: &'a Url,
    /// No more bytes than these: more is an error.
    pub bytes_max: u64,
    /// What for.
    pub purpose: Purpose,
    /// What was said of it when it was asked for last, if its bytes are there still: they need not
    /// come again then.
    pub known: Option<KnownResponse<'a>>,
    /// Whether an answer from a store on the way is no answer.
    pub anew: bool,
}

/// What was said of an address before.
#[derive(Clone, Copy, Debug)]
pub struct KnownResponse<'a> {
    /// Where the bytes were found at last.
    pub url: &'a Url,
    /// What was said of them there.
    pub headers: &'a Headers,
}

/// What something is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be shown itself.
    Page,
    /// As part of a page: a style sheet, an image, a font.
    Part,
}

/// An answer.
#[derive(Clone, Debug)]
pub enum FetchAnswer {
    /// The bytes.
    Bytes(FetchedBytes),
    /// They are those that are known; and what is said of them now.
    Unchanged(Headers),
    /// There are none, of a part of a page; and what is said of that. A [`Fetch`] that cannot say
    /// anything of it gives [`FetchError::NotFound`].
    Nothing(MissingResource),
}

/// That there is nothing, and what was said of that.
#[derive(Clone, Debug)]
pub struct MissingResource {
    /// Where nothing was found at last.
    pub url: Url,
    /// The status by which it was said: 404 or 410.
    pub status: u16,
    /// What a server said of it.
    pub headers: Headers,
}

/// Bytes, and what was said of them.
#[derive(Clone, Debug)]
pub struct FetchedBytes {
    /// The bytes, all of them.
    pub bytes: Vec<u8>,
    /// Where they were found at last; addresses in them are relative to it.
    pub url: Url,
    /// What a server said of them.
    pub headers: Headers,
    /// The time of the answer.
    pub at: SystemTime,
}

impl FetchedBytes {
    /// Bytes of which nothing is said.
    #[must_use]
    pub fn new(url: Url, bytes: Vec<u8>) -> FetchedBytes {
        FetchedBytes { bytes, url, headers: Headers::default(), at: SystemTime::now() }
    }
}

/// Headers of an answer: those that say what the bytes are, and how long they are good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    fields: Vec<(&'static str, String)>,
}

/// The headers that count here; others are not kept.
const NAMES: [&str; 9] = [
    "age",
    "cache-control",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "pragma",
    "vary",
];
/// Bytes of a header's value.
const VALUE_BYTES_MAX: usize = 4096;

impl Headers {
    /// Takes a header, if it is one that counts; one that comes again goes on the line of the
    /// first, as HTTP has it, but for `content-type`, of which the last one counts.
    pub fn add(&mut self, name: &str, value: &str) {
        let Some(name) = NAMES.iter().find(|known| known.eq_ignore_ascii_case(name)) else {
            return;
        };
        let value = value.trim();
        let is_kind = *name == "content-type";
        let is_said = !value.is_empty() && value.len() <= VALUE_BYTES_MAX;
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, there)) if is_kind && is_said => value.clone_into(there),
            Some((_, there)) if !is_kind && there.len() + value.len() < VALUE_BYTES_MAX => {
                there.push_str(", ");
                there.push_str(value);
            }
            Some(_) => {}
            None if value.len() <= VALUE_BYTES_MAX => self.fields.push((name, value.to_owned())),
            None => {}
        }
    }

    /// A header's value; `name` in small letters.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static str, &str)> {
        self.fields.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// All but one of them; `name` in small letters.
    #[must_use]
    pub(crate) fn without(&self, name: &str) -> Headers {
        let others = self.fields.iter().filter(|(known, _)| *known != name);
        Headers { fields: others.cloned().collect() }
    }

    /// What is said now, and where nothing is, what was said before.
    #[must_use]
    pub fn renewed_by(&self, now: &Headers) -> Headers {
        let mut fields = now.fields.clone();
        let older = self.fields.iter().filter(|(name, _)| now.get(name).is_none());
        // How old it was then says nothing now.
        fields.extend(older.filter(|(name, _)| !matches!(*name, "age" | "date")).cloned());
        Headers { fields }
    }
}
