//! Counts what is in use, with a limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts uses by a key, and all of them.
#[derive(Debug)]
pub(crate) struct Counter<K> {
    share: Share,
    all_max: usize,
    used: Mutex<HashMap<K, usize>>,
}

/// How much of all one key may use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Share {
    /// So many uses.
    Fixed(usize),
    /// Another use while more are free than the key has: alone it gets half, beside one that has half
    /// it gets half of the rest, and so on.
    Fair,
}

/// Why there is no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// All are taken.
    All,
    /// The key has its share, which is so many.
    Share(usize),
}

/// A use, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<K: Hash + Eq> {
    counter: Arc<Counter<K>>,
    key: Option<K>,
}

impl<K: Hash + Eq + Clone> Counter<K> {
    pub(crate) fn new(share: Share, all_max: usize) -> Arc<Counter<K>> {
        Arc::new(Counter { share, all_max, used: Mutex::default() })
    }

    /// One more.
    ///
    /// # Errors
    /// [`Full`] beyond a limit.
    pub(crate) fn take(self: &Arc<Self>, key: &K) -> Result<Counted<K>, Full> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = used.values().sum();
        let of_key = used.get(key).copied().unwrap_or(0);
        let free = self.all_max.saturating_sub(all);
        let share = match self.share {
            Share::Fixed(share) => share,
            Share::Fair => free,
        };
        if free == 0 {
            return Err(Full::All);
        }
        if of_key >= share {
            return Err(Full::Share(of_key));
        }
        used.insert(key.clone(), of_key + 1);
        Ok(Counted { counter: Arc::clone(self), key: Some(key.clone()) })
    }

    /// How many there are.
    pub(crate) fn all(&self) -> usize {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl<K: Hash + Eq> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut used = self.counter.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = self.key.take()
            && let Some(count) = used.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                used.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_taken_again() {
        let counter = Counter::new(Share::Fixed(2), 3);
        let (one, two) = (counter.take(&"a").unwrap(), counter.take(&"a").unwrap());
        assert_eq!(counter.take(&"a").unwrap_err(), Full::Share(2));
        let three = counter.take(&"b").unwrap();
        assert_eq!(counter.take(&"b").unwrap_err(), Full::All);
        drop((one, three));
        assert_eq!(counter.all(), 1);
        assert!(counter.take(&"a").is_ok());
        drop(two);
        assert_eq!(counter.all(), 0);
    }

    /// However much some keys want, there is something for the next.
    ///
    /// Guarantee: serve/applet-limits
    #[test]
    fn fair_share_leaves_some_for_others() {
        let counter = Counter::new(Share::Fair, 32);
        let mut taken = Vec::new();
        for (key, share) in [("a", 16), ("b", 8), ("c", 4), ("d", 2), ("e", 1), ("f", 1)] {
            let before = taken.len();
            taken.extend(std::iter::from_fn(|| counter.take(&key).ok()));
            assert_eq!(taken.len() - before, share, "{key}");
        }
        assert_eq!(counter.take(&"g").unwrap_err(), Full::All);
        assert!(Counter::new(Share::Fair, 1).take(&"a").is_ok());
    }
}
