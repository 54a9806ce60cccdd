//! Why there is nothing to be had at an address.

use std::io;
use std::sync::Arc;

/// Why there is nothing to be had at an address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// It is larger than is taken.
    #[error("it has more than {bytes_max} bytes")]
    TooLarge {
        /// What is taken.
        bytes_max: u64,
    },
    /// It is not asked for.
    #[error("{0}")]
    Refused(&'static str),
    /// The server that is asked does not have it.
    #[error("there is nothing at this address; is it written right?")]
    NotFound,
    /// The server answers something else.
    #[error("the server answers {}", said(*.status))]
    Status {
        /// Its number.
        status: u16,
    },
    /// It is no page.
    #[error("it is no page but {kind}; fetch it with another program, such as `curl -O`")]
    NotHtml {
        /// What the server says it is.
        kind: String,
    },
    /// Its bytes are no page, and nothing says that they are.
    #[error("it is no page but {kind}; open it with another program")]
    Binary {
        /// What it seems to be.
        kind: &'static str,
    },
    /// It comes in a form that is not understood.
    #[error("the server sends it as {encoding:?}, which is not understood and was not asked for")]
    Encoding {
        /// The encoding, as the server names it.
        encoding: String,
    },
    /// It leads in a circle, or nearly.
    #[error("the server leads on to another address more than {max} times")]
    Redirects {
        /// How often it may.
        max: u32,
    },
    /// The name is of no server.
    #[error("no server has this name; look at the address, and at the network")]
    HostNotFound,
    /// There is no connection.
    #[error("the server cannot be reached: {0}; is it running, and is the network there?")]
    Unreachable(io::Error),
    /// The server is not the one that it should be, as far as is known, or does not talk TLS.
    #[error(
        "there is no safe connection to this server: {message}; it is not trusted, and nothing was asked of it"
    )]
    Tls {
        /// What went wrong, in words.
        message: String,
    },
    /// What comes is no HTTP.
    #[error("the server does not answer as servers do: {message}")]
    Protocol {
        /// What went wrong, in words.
        message: String,
    },
    /// It takes too long.
    #[error(
        "the server has not answered within {seconds} s; try again later, or wait longer by --patience"
    )]
    TimeOut {
        /// How long was waited.
        seconds: u64,
    },
    /// It stopped on the way, or comes drop by drop.
    #[error("the server sends it too slowly; try again later, or wait longer by --patience")]
    Slow,
    /// The connection ended before all of it was there.
    #[error("only a part of it came: {message}; try again")]
    Cut {
        /// What went wrong, in words.
        message: String,
    },
    /// It leads on to another server, and there is nothing to be had from that one.
    #[error("it leads on to {host}: {error}")]
    Elsewhere {
        /// The name of that server.
        host: String,
        /// The error of the request to it.
        error: Arc<FetchError>,
    },
    /// Its server was not reached, and had said before that it must be asked.
    #[error(
        "{error}; its server wants to be asked each time, but --offline shows what is kept all the same"
    )]
    MustAsk {
        /// Why it could not be asked.
        error: Arc<FetchError>,
    },
    /// No server was asked, and nothing of it is kept.
    #[error("nothing of it is kept, and with --offline nobody is asked")]
    Offline,
    /// The page's time for servers was over.
    #[error("the servers took too long before this was asked for")]
    Late,
}

fn said(status: u16) -> String {
    let meaning = match status {
        401 | 407 => ": it wants a name and a password, which are not given",
        403 => ": this is not for everybody",
        429 => ": it was asked too often; try again later",
        500..=599 => ": it has a fault, or too much to do; try again later",
        _ => "",
    };
    format!("{status}{meaning}")
}

impl FetchError {
    /// Whether there is nothing at the address, as far as is known.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            FetchError::Read(error) => error.kind() == io::ErrorKind::NotFound,
            FetchError::NotFound | FetchError::HostNotFound | FetchError::Offline => true,
            FetchError::MustAsk { error } | FetchError::Elsewhere { error, .. } => {
                error.is_not_found()
            }
            _ => false,
        }
    }

    /// Whether it is so of all that the server has.
    #[must_use]
    pub(crate) fn is_of_server(&self) -> bool {
        let error = match self {
            FetchError::MustAsk { error } => error,
            error => error,
        };
        matches!(
            error,
            FetchError::HostNotFound
                | FetchError::Unreachable(_)
                | FetchError::TimeOut { .. }
                | FetchError::Tls { .. }
        )
    }

    /// Whether it says nothing of what is there: the server that would know was not reached, or is
    /// out of order.
    #[must_use]
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            FetchError::Status { status } => matches!(status, 429 | 500..=599),
            FetchError::Elsewhere { error, .. } => error.is_silence(),
            FetchError::HostNotFound
            | FetchError::Unreachable(_)
            | FetchError::Tls { .. }
            | FetchError::Protocol { .. }
            | FetchError::TimeOut { .. }
            | FetchError::Slow
            | FetchError::Cut { .. }
            | FetchError::Offline
            | FetchError::Late => true,
            _ => false,
        }
    }
}
