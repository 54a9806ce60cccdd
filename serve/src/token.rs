//! Tokens: a page gets one over HTTP and presents it as the first message of its WebSocket.
//!
//! Invariants: a token opens one connection, of the origin that it was given to, within its life. One
//! that is presented is gone, whatever the answer. The table is bounded.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::origin::Origin;

/// Bytes of a token.
pub(crate) const TOKEN_BYTES: usize = 32;
/// Tokens of one origin that were not presented yet.
const PER_ORIGIN_MAX: usize = 64;
const ALL_MAX: usize = 1024;

pub(crate) type Token = [u8; TOKEN_BYTES];

/// The tokens that were given and not presented.
#[derive(Debug)]
pub(crate) struct Tokens {
    life: Duration,
    given: Mutex<HashMap<Token, (Origin, Instant)>>,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token is not known here, or was used before; get a new one for each connection")]
    Unknown,
    #[error("the token is too old; present it at once")]
    Expired,
    #[error("the token was given to another origin")]
    OtherOrigin,
}

impl Tokens {
    pub(crate) fn new(life: Duration) -> Tokens {
        Tokens { life, given: Mutex::default() }
    }

    /// A new token; `None` while the origin has too many that it does not use.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub(crate) fn give(&self, origin: &Origin) -> io::Result<Option<Token>> {
        let mut token = [0; TOKEN_BYTES];
        let mut filled = 0;
        while filled < TOKEN_BYTES {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut token[filled..], flags)?;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, (_, since)| since.elapsed() < self.life);
        let of_origin = given.values().filter(|(holder, _)| holder == origin).count();
        if of_origin >= PER_ORIGIN_MAX || given.len() >= ALL_MAX {
            return Ok(None);
        }
        given.insert(token, (origin.clone(), Instant::now()));
        Ok(Some(token))
    }

    /// Uses a token up.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) fn present(&self, token: &Token, origin: &Origin) -> Result<(), TokenError> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let (holder, since) = given.remove(token).ok_or(TokenError::Unknown)?;
        if holder != *origin {
            return Err(TokenError::OtherOrigin);
        }
        if since.elapsed() >= self.life {
            return Err(TokenError::Expired);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse().unwrap()
    }

    /// A token is good once, for its origin.
    ///
    /// Guarantee: serve/token
    #[test]
    fn token_is_good_once_and_for_its_origin() {
        let tokens = Tokens::new(Duration::from_secs(60));
        let (own, other) = (origin("https://a.example"), origin("https://b.example"));
        let token = tokens.give(&own).unwrap().unwrap();
        assert_eq!(tokens.present(&token, &own), Ok(()));
        assert_eq!(tokens.present(&token, &own), Err(TokenError::Unknown));
        let token = tokens.give(&own).unwrap().unwrap();
        assert_eq!(tokens.present(&token, &other), Err(TokenError::OtherOrigin));
        assert_eq!(tokens.present(&token, &own), Err(TokenError::Unknown));
        assert_eq!(tokens.present(&[0; TOKEN_BYTES], &own), Err(TokenError::Unknown));
    }

    /// Guarantee: serve/token
    #[test]
    fn token_expires() {
        let tokens = Tokens::new(Duration::from_millis(20));
        let own = origin("https://a.example");
        let token = tokens.give(&own).unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(tokens.present(&token, &own), Err(TokenError::Expired));
    }

    #[test]
    fn an_origin_that_uses_no_token_gets_no_more() {
        let tokens = Tokens::new(Duration::from_secs(60));
        let (own, other) = (origin("https://a.example"), origin("https://b.example"));
        let given = (0..100).filter_map(|_| tokens.give(&own).unwrap()).count();
        assert_eq!(given, PER_ORIGIN_MAX);
        assert!(tokens.give(&other).unwrap().is_some());
    }
}
