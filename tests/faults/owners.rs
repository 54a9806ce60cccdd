//! Row H13: several homes with one pool. Processes of two homes go for it at the same moment, with
//! a heap that one of them has there already or in an empty pool, and are killed at random. One
//! home has the pool, the other is refused, and no image is written, evicted or removed by the home
//! that it does not belong to.

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use holdfast_keeper::{Config, Keeper, PoolLimit};
use holdfast_region::{Consistency, PlaceError, Places, RegionError};
use holdfast_testkit::Trials;
use rand::RngExt;

use crate::driver::{Child, Ended, SharedWords, run, wait_until};
use crate::home::Home;
use crate::ledger::{Ledger, Refused};

const RACES: u64 = 60;
const TAKEN: i32 = 3;
const REFUSED: i32 = 4;
const GO: usize = 0;
const WAITING: usize = 1;
const DELAY_US_MAX: u64 = 4000;

/// Guarantee: heap/one-home
/// Guarantee: keeper/one-keeper
#[test]
fn one_home_has_a_pool_and_others_touch_nothing_in_it() {
    run("owners");
}

fn is_refusal(error: &PlaceError) -> bool {
    matches!(error, PlaceError::PoolOfOther { .. } | PlaceError::PoolOfLost { .. })
}

/// Makes an entry in the ledger of the pool, or a keeper with a limit of one byte.
fn use_pool(home: &Home, is_keeper: bool, said: &SharedWords) -> i32 {
    said.word(WAITING).fetch_add(1, SeqCst);
    assert!(wait_until(|| said.word(GO).load(SeqCst) == 1));
    if is_keeper {
        let mut config = Config::default();
        config.pool_limit = PoolLimit::Bytes(1);
        let places = match home.try_names() {
            Ok(names) => names.places().clone(),
            Err(RegionError::Place(error)) if is_refusal(&error) => return REFUSED,
            Err(error) => panic!("{error}"),
        };
        let evicted = Keeper::new(places, config).unwrap().evict();
        assert_eq!(evicted.failed, [""; 0]);
        return TAKEN;
    }
    let names = match home.try_names() {
        Ok(names) => names,
        Err(RegionError::Place(error)) if is_refusal(&error) => return REFUSED,
        Err(error) => panic!("{error}"),
    };
    match Ledger::open(&names, Consistency::Direct) {
        Ok(mut ledger) => {
            ledger.enter().unwrap();
            ledger.leave();
            TAKEN
        }
        Err(Refused::Region(RegionError::Held { .. })) => TAKEN,
        Err(error) => panic!("{error:?}"),
    }
}

fn entries(home: &Home) -> u64 {
    let ledger = Ledger::open(&home.names(), Consistency::Direct).unwrap();
    ledger.verify("the pool's owner");
    let done = ledger.done();
    ledger.leave();
    done
}

pub(crate) fn drive() {
    let mut trials = Trials::of("H13", "homes that share a pool", RACES);
    let (mut refusals, mut kills) = (0, 0);
    while let Some(mut trial) = trials.next() {
        let context = format!("race {}, seed {:#x}", trial.number, trial.seed);
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let at = |name: &str| directory.path().join(name);
        let pool = at("pool");
        let homes = [Home::at(&at("one"), &pool), Home::at(&at("other"), &pool)];
        // Of an earlier version, of an owner, or of none yet.
        let before = match trial.number % 3 {
            0 => None,
            kind => {
                let mut ledger = Ledger::open(&homes[0].names(), Consistency::Direct).unwrap();
                for _ in 0..3 {
                    ledger.enter().unwrap();
                }
                ledger.close().unwrap();
                let mut ledger = Ledger::open(&homes[0].names(), Consistency::Direct).unwrap();
                let done = ledger.enter().unwrap();
                ledger.leave();
                if kind == 2 {
                    std::fs::remove_file(pool.join(".owner")).unwrap();
                }
                Some(done)
            }
        };
        let said = SharedWords::new();
        let children: Vec<Child> = (0..4)
            .map(|child| {
                // With an owner, its own keeper would evict as it should: only the other home has
                // one.
                let is_keeper = child == 1 && before.is_some();
                Child::fork(|| use_pool(&homes[child % 2], is_keeper, &said))
            })
            .collect();
        assert!(wait_until(|| said.word(WAITING).load(SeqCst) == 4), "{context}");
        said.word(GO).store(1, SeqCst);
        if trial.random.random_ratio(1, 2) {
            std::thread::sleep(Duration::from_micros(trial.random.random_range(0..DELAY_US_MAX)));
            children[trial.random.random_range(0..4)].kill();
            kills += 1;
        }
        let ended: Vec<Ended> = children.into_iter().map(Child::wait).collect();
        let by =
            |home: usize, how: Ended| ended.iter().skip(home).step_by(2).any(|ended| *ended == how);
        for ended in &ended {
            let fine = [Ended::With(TAKEN), Ended::With(REFUSED), Ended::By(libc::SIGKILL)]
                .contains(ended);
            assert!(fine, "{context}: {ended:?}");
        }
        let both = by(0, Ended::With(TAKEN)) && by(1, Ended::With(TAKEN));
        assert!(!both, "{context}: two homes had the pool: {ended:?}");
        refusals += ended.iter().filter(|ended| **ended == Ended::With(REFUSED)).count();
        match before {
            Some(done) => {
                assert!(!by(1, Ended::With(TAKEN)), "{context}: {ended:?}");
                assert!(entries(&homes[0]) >= done, "{context}: entries are lost");
                assert!(!stored(&at("other")), "{context}: the other home has the heap");
            }
            None => {
                let has = |home: &Home| home.try_names().is_ok();
                assert!(has(&homes[0]) != has(&homes[1]), "{context}");
            }
        }
    }
    assert!(trials.count() < 20 || refusals > 0 && kills > 0, "{refusals} refusals, {kills} kills");
}

fn stored(home: &Path) -> bool {
    std::fs::read_dir(home.join("store")).is_ok_and(|mut entries| entries.next().is_some())
        || Places::at(home, home.join("own pool")).is_err()
}
