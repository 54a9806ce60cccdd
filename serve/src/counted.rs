//! Counts what is in use, with a limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts uses by a key, and all of them.
#[derive(Debug)]
pub(crate) struct Counter<K> {
    each_max: usize,
    all_max: usize,
    used: Mutex<HashMap<K, usize>>,
}

/// A use, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<K: Hash + Eq> {
    counter: Arc<Counter<K>>,
    key: Option<K>,
}

impl<K: Hash + Eq + Clone> Counter<K> {
    pub(crate) fn new(each_max: usize, all_max: usize) -> Arc<Counter<K>> {
        Arc::new(Counter { each_max, all_max, used: Mutex::default() })
    }

    /// One more; `None` beyond a limit.
    pub(crate) fn take(self: &Arc<Self>, key: &K) -> Option<Counted<K>> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = used.values().sum();
        let of_key = used.get(key).copied().unwrap_or(0);
        if all >= self.all_max || of_key >= self.each_max {
            return None;
        }
        used.insert(key.clone(), of_key + 1);
        Some(Counted { counter: Arc::clone(self), key: Some(key.clone()) })
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
        let counter = Counter::new(2, 3);
        let (one, two) = (counter.take(&"a").unwrap(), counter.take(&"a").unwrap());
        assert!(counter.take(&"a").is_none());
        let three = counter.take(&"b").unwrap();
        assert!(counter.take(&"b").is_none());
        drop((one, three));
        assert_eq!(counter.all(), 1);
        assert!(counter.take(&"a").is_some());
        drop(two);
        assert_eq!(counter.all(), 0);
    }
}
