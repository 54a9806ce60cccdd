//! Decides which origins may run applets here.
//!
//! Invariants: an origin is allowed by an option of the command line, by the record of the home, or
//! by the user's answer, which is recorded. A refusal holds until the server ends: no page asks
//! twice. One question is on the terminal at a time, and others do not queue up behind it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::origin::Origin;
use crate::prompt;
use crate::record::OriginRecord;

/// After so many refusals the user gets no more questions.
const REFUSED_MAX: usize = 100;

/// How the user is asked, off the threads that serve.
pub(crate) type Ask = Arc<dyn Fn(&Origin) -> Option<bool> + Send + Sync>;

/// Decides about origins.
pub(crate) struct Consent {
    allowed: HashSet<Origin>,
    record: OriginRecord,
    refused: Arc<Mutex<HashSet<Origin>>>,
    asking: Arc<tokio::sync::Mutex<()>>,
    ask: Ask,
}

/// Why an origin may not run applets, in words for the page's author.
pub(crate) type Refusal = String;

impl Consent {
    /// `asks`: the user is asked, where there is a terminal.
    pub(crate) fn new(allowed: Vec<Origin>, record: OriginRecord, asks: bool) -> Consent {
        let ask: Ask = if asks { Arc::new(prompt::ask) } else { Arc::new(|_| None) };
        Consent::asking_by(allowed, record, ask)
    }

    fn asking_by(allowed: Vec<Origin>, record: OriginRecord, ask: Ask) -> Consent {
        Consent {
            allowed: allowed.into_iter().collect(),
            record,
            refused: Arc::default(),
            asking: Arc::default(),
            ask,
        }
    }

    /// Whether an origin is allowed already, without a question. It reads the record each time, so that
    /// an origin that was forgotten is refused at once.
    pub(crate) fn is_allowed(&self, origin: &Origin) -> Result<bool, Refusal> {
        if self.allowed.contains(origin) {
            return Ok(true);
        }
        self.record.list().map(|known| known.contains(origin)).map_err(|error| error.to_string())
    }

    /// Allows or refuses an origin, after a question to the user if need be.
    pub(crate) async fn decide(&self, origin: &Origin) -> Result<(), Refusal> {
        if self.is_allowed(origin)? {
            return Ok(());
        }
        let refused = format!(
            "{origin} may not run applets here; the user allows it with `holdfast serve --allow {origin}`"
        );
        // Who can change the pages of an open network could ask: these are named by an option only.
        if !origin.is_secure() || self.is_refused(origin) {
            return Err(refused);
        }
        let Ok(turn) = Arc::clone(&self.asking).try_lock_owned() else {
            return Err("the user is being asked about another page; try again".to_owned());
        };
        let (ask, asked, record) = (Arc::clone(&self.ask), origin.clone(), self.record.clone());
        let all_refused = Arc::clone(&self.refused);
        // The question stays open, and its answer counts, when the page that asked is gone.
        let answer = tokio::task::spawn_blocking(move || {
            let answer = ask(&asked);
            let recorded = match answer {
                Some(true) => record.allow(&asked).map(|_| true).map_err(|error| error.to_string()),
                Some(false) => {
                    lock(&all_refused).insert(asked);
                    Ok(false)
                }
                // There is no terminal, or the server ends.
                None => Ok(false),
            };
            drop(turn);
            recorded
        });
        match answer.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Err(words)) => Err(words),
            Ok(Ok(false)) | Err(_) => Err(refused),
        }
    }

    fn is_refused(&self, origin: &Origin) -> bool {
        let refused = lock(&self.refused);
        refused.len() >= REFUSED_MAX || refused.contains(origin)
    }
}

fn lock(refused: &Mutex<HashSet<Origin>>) -> std::sync::MutexGuard<'_, HashSet<Origin>> {
    refused.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn decide(consent: &Consent, origin: &str) -> Result<(), Refusal> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(consent.decide(&origin.parse().unwrap()))
    }

    /// The answer to a question counts also when the page that asked has gone, and until it comes
    /// no other question is asked.
    ///
    /// Guarantee: serve/consent
    #[test]
    fn question_outlives_the_page_that_asked() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let places = holdfast_region::Places::at(&home, folder.path().join("pool")).unwrap();
        let (answer, answers) = std::sync::mpsc::channel();
        let answers = Mutex::new(answers);
        let ask: Ask = Arc::new(move |_| answers.lock().unwrap().recv().ok());
        let consent = Consent::asking_by(Vec::new(), OriginRecord::of(&places), ask);
        let origin: Origin = "https://bad.example".parse().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let soon = std::time::Duration::from_millis(50);
            assert!(tokio::time::timeout(soon, consent.decide(&origin)).await.is_err());
            let other = "https://other.example".parse().unwrap();
            assert!(consent.decide(&other).await.unwrap_err().contains("another page"));
            answer.send(false).unwrap();
            let free = async {
                while consent.asking.try_lock().is_err() {
                    tokio::time::sleep(soon).await;
                }
            };
            tokio::time::timeout(soon * 100, free).await.unwrap();
            assert!(consent.is_refused(&origin));
        });
    }

    /// A page of another origin is allowed by an option, or by an answer that is remembered; a
    /// refusal is not asked about again.
    ///
    /// Guarantee: serve/consent
    #[test]
    fn user_is_asked_once_about_an_origin() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let places = holdfast_region::Places::at(&home, folder.path().join("pool")).unwrap();
        let record = OriginRecord::of(&places);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let ask: Ask = Arc::new(move |origin| {
            count.fetch_add(1, Ordering::Relaxed);
            Some(origin.as_str() == "https://good.example")
        });
        let allowed = vec!["http://plain.example".parse().unwrap()];
        let consent = Consent::asking_by(allowed, record.clone(), ask);
        let questions = || asked.load(Ordering::Relaxed);
        decide(&consent, "http://plain.example").unwrap();
        assert!(decide(&consent, "http://other.example").is_err(), "over an open network");
        assert_eq!(questions(), 0);
        decide(&consent, "https://good.example").unwrap();
        decide(&consent, "https://good.example").unwrap();
        assert_eq!((questions(), record.list().unwrap().len()), (1, 1));
        for _ in 0..3 {
            let refusal = decide(&consent, "https://bad.example").unwrap_err();
            assert!(refusal.contains("--allow https://bad.example"), "{refusal}");
        }
        assert_eq!((questions(), record.list().unwrap().len()), (2, 1));
        record.forget(&"https://good.example".parse().unwrap()).unwrap();
        assert!(!consent.is_allowed(&"https://good.example".parse().unwrap()).unwrap());
        let silent = Consent::asking_by(Vec::new(), record, Arc::new(|_| None));
        assert!(decide(&silent, "https://good.example").unwrap_err().contains("--allow"));
    }
}
