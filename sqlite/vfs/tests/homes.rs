//! A database that is opened from somewhere else than where it was written: another home, another
//! pool, another mount name space. Its newest commits are in a pool that is not the one in use, and
//! none of them is lost by that. Row S8.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Player, assert_sound, number, open, role, scratch, try_open};
use holdfast_region::Places;
use holdfast_sqlite::{Databases, State};
use holdfast_testkit::Trials;

const ROWS: i64 = 1001;
const COUNT: &str = "SELECT count(*) FROM t";

/// A folder with a database, two homes and their pools.
struct Ground {
    folder: tempfile::TempDir,
    /// The pools, in memory.
    memory: tempfile::TempDir,
    test: &'static str,
}

/// Where a process runs.
struct Place {
    variables: Vec<(&'static str, String)>,
    /// What is run in a mount name space of its own before the process.
    mounts: Option<String>,
}

impl Place {
    fn of(home: &Path, pool: &Path) -> Place {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let variables = vec![("HOLDFAST_HOME", text(home)), ("HOLDFAST_POOL", text(pool))];
        Place { variables, mounts: None }
    }
}

impl Ground {
    fn new(test: &'static str) -> Ground {
        let memory =
            tempfile::Builder::new().prefix("holdfast-homes-").tempdir_in("/dev/shm").unwrap();
        let folder = scratch();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        Ground { folder, memory, test }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn database(&self) -> PathBuf {
        self.at("data/db")
    }

    fn pool(&self) -> PathBuf {
        self.memory.path().join("pool")
    }

    fn home(&self) -> Place {
        Place::of(&self.at("home"), &self.pool())
    }

    fn other_home(&self) -> Place {
        Place::of(&self.at("other home"), &self.memory.path().join("other pool"))
    }

    /// As sudo does it: nothing says where home and pool are but `HOME`. The pool has its default
    /// place.
    fn other_user_home(&self) -> Place {
        std::fs::create_dir_all(self.at("root")).unwrap();
        let home = self.at("root").to_str().unwrap().to_owned();
        let empty = ["HOLDFAST_HOME", "HOLDFAST_POOL", "XDG_DATA_HOME", "XDG_CACHE_HOME"];
        let mut variables: Vec<_> = empty.map(|name| (name, String::new())).into();
        variables.push(("HOME", home));
        Place { variables, mounts: None }
    }

    /// The same home with a pool that no other home has: that of the other home would be refused
    /// for that.
    fn other_pool(&self) -> Place {
        Place::of(&self.at("home"), &self.memory.path().join("third pool"))
    }

    /// The same home and the same path of the pool, in a container: /dev/shm is another tmpfs
    /// there.
    fn container(&self) -> Place {
        let mounts = "mount -t tmpfs tmpfs /dev/shm".to_owned();
        Place { mounts: Some(mounts), ..self.home() }
    }

    /// The same with a directory of the same tmpfs bound over that of the pool.
    fn covered(&self) -> Place {
        let over = self.memory.path().join("over");
        std::fs::create_dir_all(&over).unwrap();
        std::fs::set_permissions(&over, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mounts = format!("mount --bind '{}' '{}'", over.display(), self.pool().display());
        Place { mounts: Some(mounts), ..self.home() }
    }

    /// A process that plays a role of the test, and is killed with the value.
    fn start(&self, role: &str, place: &Place) -> Player {
        let variables: Vec<(&str, &str)> =
            place.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Player::start_with(self.test, role, self.folder.path(), &variables)
    }

    /// A process that plays a role to its end; what it said.
    fn play(&self, role: &str, place: &Place) -> String {
        let program = std::env::current_exe().unwrap();
        let mut command = match &place.mounts {
            None => Command::new(&program),
            Some(mounts) => {
                let mut command = Command::new("unshare");
                command
                    .args(["-m", "sh", "-c", &format!("{mounts} && exec \"$@\""), "sh"])
                    .arg(&program);
                command
            }
        };
        command.args([self.test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env("HOLDFAST_TEST_ROLE", role).env("HOLDFAST_TEST_FOLDER", self.folder.path());
        command.envs(place.variables.iter().map(|(name, value)| (name, value)));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{role}: {text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let said = text.lines().filter_map(|line| line.split_once("said: ")).map(|(_, said)| said);
        said.collect::<Vec<_>>().join("\n")
    }

    /// Rows that are only in the pool of the home, and no process that has it open.
    fn leave_rows(&self, parameters: &str, rows: i64) -> i64 {
        let mut writer = self.start(&format!("write {parameters}"), &self.home());
        let mut told = 0;
        while told < rows {
            told = writer.first("told: ");
        }
        writer.kill("told: ").unwrap_or(told)
    }

    /// All that another place may try with a database that is not its own.
    fn assert_refused(&self, place: &Place) -> String {
        let files = || {
            ["data/db", "data/db-holdfast"]
                .map(|name| std::fs::read(self.at(name)).ok().map(|bytes| bytes.len()))
        };
        let page = || std::fs::read(self.database()).unwrap();
        let before = (files(), page());
        let said = self.play("try", place);
        assert_eq!((files(), page()), before, "something was changed: {said}");
        let refusals = said.lines().filter(|line| line.starts_with("refused"));
        assert_eq!(refusals.count(), 7, "{said}");
        assert!(!said.contains("done"), "{said}");
        said
    }

    /// The rows as the home finds them.
    fn rows_at_home(&self) -> i64 {
        self.play("count", &self.home()).parse().unwrap()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // The default pool of the home that only HOME named.
        let home = self.at("root/.local/share/holdfast");
        let user = self.folder.path().metadata().unwrap().uid();
        let Ok(pools) = std::fs::read_dir(format!("/dev/shm/holdfast-{user}")) else { return };
        for pool in pools.flatten().map(|pool| pool.path()) {
            let note = std::fs::read_to_string(pool.join("home")).unwrap_or_default();
            if Path::new(note.trim_end()) == home {
                let _ = std::fs::remove_dir_all(pool);
            }
        }
    }
}

fn answer<T: std::fmt::Debug, E: std::fmt::Display>(what: &str, answer: Result<T, E>) {
    match answer {
        Ok(done) => println!("\nsaid: done: {what}: {done:?}"),
        Err(error) => println!("\nsaid: refused: {what}: {error}"),
    }
}

/// What the processes of these tests do.
fn play(role: &str, folder: &Path) {
    let path = folder.join("data/db");
    let (role, rest) = role.split_once(' ').unwrap_or((role, ""));
    match role {
        "write" => {
            let connection = open(&path, rest);
            connection.execute_batch("CREATE TABLE IF NOT EXISTS t (a)").unwrap();
            loop {
                connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
                println!("\ntold: {}", number(&connection, COUNT));
            }
        }
        "count" => {
            let connection = open(&path, "");
            assert_sound(&connection);
            println!("\nsaid: {}", number(&connection, COUNT));
        }
        "try" => {
            let read = |sql: &str| try_open(&path, "").and_then(|found| found.execute_batch(sql));
            answer("read", read("SELECT * FROM sqlite_schema"));
            answer("write", read("CREATE TABLE u (a)"));
            answer("checkpoint", holdfast_sqlite::checkpoint(&path));
            answer("release", holdfast_sqlite::release(&path));
            answer("recover", holdfast_sqlite::recover(&path, false));
            answer("discard", holdfast_sqlite::recover(&path, true));
            let status = holdfast_sqlite::status(&path).unwrap();
            assert!(status.is_hot);
            match (status.state, status.problem) {
                (State::Refused, Some(problem)) => println!("\nsaid: refused: status: {problem}"),
                found => println!("\nsaid: done: status: {found:?}"),
            }
        }
        "discard" => {
            answer("another", holdfast_sqlite::recover_without_pool(&path, Path::new("/another")));
            answer("named", holdfast_sqlite::recover_without_pool(&path, Path::new(rest)));
        }
        "recover" => answer("recover", holdfast_sqlite::recover(&path, false)),
        "save" => {
            let databases = Databases::of(&Places::from_env().unwrap());
            answer("save", databases.save(&databases.list().unwrap()[0]));
        }
        other => panic!("there is no role {other}"),
    }
}

/// How a test begins; `None` in a process that has a role in it, and has played that.
fn begin(test: &'static str) -> Option<Ground> {
    if let Some((role, folder)) = role() {
        play(&role, &folder);
        return None;
    }
    Some(Ground::new(test))
}

/// Whether other mounts can be made; a text says why not.
fn mounts() -> Result<(), String> {
    let tried = Command::new("unshare").args(["-m", "true"]).stdin(Stdio::null()).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

/// The issue's own case, and its kin: a killed writer, then others who open the file from
/// elsewhere, then the home.
///
/// Guarantee: sqlite/other-homes
#[test]
fn killed_writers_commits_outlive_other_homes() {
    const TEST: &str = "killed_writers_commits_outlive_other_homes";
    if let Some((role, folder)) = role() {
        return play(&role, &folder);
    }
    let settings = ["threshold=infinity", "level=system", "level=power", "threshold=5"];
    let mut trials = Trials::of("S8", "openers of other homes and pools", 4);
    while let Some(trial) = trials.next() {
        let ground = Ground::new(TEST);
        let told = ground.leave_rows(settings[trial.number as usize % settings.len()], ROWS);
        let pool = ground.pool().canonicalize().unwrap();
        for place in [ground.other_home(), ground.other_user_home(), ground.other_pool()] {
            let said = ground.assert_refused(&place);
            assert!(said.contains(&format!("pool {}", pool.display())), "{said}");
            assert!(said.contains("--lost-pool"), "{said}");
        }
        for pool in ["other pool", "third pool"] {
            let left = std::fs::read_dir(ground.memory.path().join(pool)).unwrap();
            let mut names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, [".owner", "home", "sqlite-pool-id"], "left behind");
        }
        let found = ground.rows_at_home();
        assert!(found == told || found == told + 1, "{told} acknowledged, {found} there");
        // Closed in order it is anybody's.
        assert_eq!(ground.play("count", &ground.other_home()), found.to_string());
    }
}

/// A pool that cannot be seen is not a pool that is lost.
///
/// Guarantee: sqlite/other-homes
#[test]
fn a_container_with_its_own_dev_shm_loses_nothing() {
    const TEST: &str = "a_container_with_its_own_dev_shm_loses_nothing";
    if let Some((role, folder)) = role() {
        return play(&role, &folder);
    }
    if let Err(reason) = mounts() {
        return println!("not run: {reason}");
    }
    let mut trials = Trials::of("S8", "openers behind other mounts", 2);
    while let Some(trial) = trials.next() {
        let ground = Ground::new(TEST);
        let told = ground.leave_rows("threshold=infinity", 101);
        let place = if trial.number % 2 == 0 { ground.container() } else { ground.covered() };
        let said = ground.assert_refused(&place);
        assert!(said.contains("cannot be seen from here"), "{said}");
        let found = ground.rows_at_home();
        assert!(found == told || found == told + 1, "{told} acknowledged, {found} there");
    }
}

/// A process that has the database open before it goes to another pool reads nothing old, and
/// writes nothing over it.
///
/// Guarantee: sqlite/other-homes
#[test]
fn who_had_it_open_sees_that_it_went_to_another_pool() {
    let Some(ground) = begin("who_had_it_open_sees_that_it_went_to_another_pool") else { return };
    let other = open(&ground.database(), "");
    other.execute_batch("CREATE TABLE t (a); PRAGMA holdfast_release").unwrap();
    assert_eq!(number(&other, COUNT), 0);
    let mut writer = ground.start("write threshold=infinity", &ground.home());
    let first = writer.first("told: ");
    assert!(
        other.query_row(COUNT, [], |row| row.get::<_, i64>(0)).is_err(),
        "it reads what was before"
    );
    assert!(other.execute("INSERT INTO t VALUES (2)", []).is_err());
    let told = writer.kill("told: ").unwrap_or(first);
    assert!(other.query_row(COUNT, [], |row| row.get::<_, i64>(0)).is_err());
    drop(other);
    assert!(ground.rows_at_home() >= told);
}

/// The same where that pool is gone: nothing is read past what the log has, which the next opening
/// brings.
///
/// Guarantee: sqlite/lost-pool
/// Guarantee: sqlite/other-homes
#[test]
fn who_had_it_open_sees_that_the_other_pool_is_gone() {
    let Some(ground) = begin("who_had_it_open_sees_that_the_other_pool_is_gone") else { return };
    let other = open(&ground.database(), "");
    other.execute_batch("CREATE TABLE t (a); PRAGMA holdfast_release").unwrap();
    assert_eq!(number(&other, COUNT), 0);
    let mut writer = ground.start("write level=power", &ground.home());
    let first = writer.first("told: ");
    let told = writer.kill("told: ").unwrap_or(first);
    std::fs::remove_dir_all(ground.pool()).unwrap();
    let read = other.query_row(COUNT, [], |row| row.get::<_, i64>(0));
    assert!(read.is_err(), "it reads what was before: {read:?}");
    assert!(other.execute("INSERT INTO t VALUES (2)", []).is_err());
    drop(other);
    let connection = open(&ground.database(), "");
    assert!(number(&connection, COUNT) >= told);
    assert_sound(&connection);
}

/// It was removed: where it was is here, and it is not. Then what the log has is taken, from any
/// home.
///
/// Guarantee: sqlite/lost-pool
#[test]
fn removed_pool_is_lost_and_a_moved_one_is_not() {
    let Some(ground) = begin("removed_pool_is_lost_and_a_moved_one_is_not") else { return };
    let told = ground.leave_rows("threshold=infinity", 11);
    let (pool, moved) = (ground.pool(), ground.memory.path().join("moved"));
    std::fs::rename(&pool, &moved).unwrap();
    ground.assert_refused(&ground.home());
    let _ = std::fs::remove_dir_all(&pool);
    std::fs::rename(&moved, &pool).unwrap();
    assert!(ground.rows_at_home() >= told);

    for place in [ground.home(), ground.other_home()] {
        let told = ground.leave_rows("level=power", 21);
        std::fs::remove_dir_all(&pool).unwrap();
        assert_eq!(ground.play("recover", &place), "done: recover: LastFlush");
        assert!(ground.rows_at_home() >= told);
    }
}

/// Guarantee: sqlite/discard
/// Guarantee: sqlite/other-homes
#[test]
fn what_may_exist_is_dropped_only_by_its_name() {
    let Some(ground) = begin("what_may_exist_is_dropped_only_by_its_name") else { return };
    let told = ground.leave_rows("level=power", 11);
    let pool = ground.pool().canonicalize().unwrap();
    let drop_it = format!("discard {}", pool.display());
    let said = ground.play(&drop_it, &ground.other_home());
    assert!(
        said.contains("refused: another") && said.ends_with("done: named: LastFlush"),
        "{said}"
    );
    // Its image is of no use at home any more, which says so. All of it was in the log.
    let said = ground.play("recover", &ground.home());
    assert!(said.contains("overwritten"), "{said}");
    assert!(ground.play("count", &ground.other_home()).parse::<i64>().unwrap() >= told);

    // A sound image of the pool in use is not dropped by --discard alone, either.
    let ground = Ground::new(ground.test);
    let told = ground.leave_rows("threshold=infinity", 11);
    let said = ground.play("discard /elsewhere", &ground.home());
    assert_eq!(said.matches("is sound and has").count(), 2, "{said}");
    assert!(ground.rows_at_home() >= told);
    ground.leave_rows("threshold=infinity", told + 5);
    let said = ground.play(&format!("discard {}", ground.pool().display()), &ground.home());
    assert!(said.ends_with("done: named: LastFlush"), "{said}");
}

/// Guarantee: sqlite/backups
/// Guarantee: sqlite/copies
/// Guarantee: sqlite/renamed
#[test]
fn copies_and_renamed_files_are_told_apart() {
    let Some(ground) = begin("copies_and_renamed_files_are_told_apart") else { return };
    let told = ground.leave_rows("threshold=infinity", 11);
    let files = [ground.database(), ground.at("data/db-holdfast")];
    let hidden = [ground.at("db"), ground.at("db-holdfast")];
    let rename = |from: &[PathBuf; 2], to: &[PathBuf; 2]| {
        for (from, to) in from.iter().zip(to) {
            std::fs::rename(from, to).unwrap();
        }
    };
    // Renamed, and its name taken by a copy, without the log and with it.
    rename(&files, &hidden);
    std::fs::copy(&hidden[0], &files[0]).unwrap();
    let said = ground.assert_refused(&ground.other_home());
    assert!(said.contains("a pool that is not the one in use here"), "{said}");
    let said = ground.play("recover", &ground.home());
    assert!(said.contains("is not there any more"), "{said}");
    std::fs::copy(&hidden[1], &files[1]).unwrap();
    ground.assert_refused(&ground.other_home());
    // As after a move to another file system: the original is gone.
    let said = ground.assert_refused(&ground.home());
    assert!(said.contains("moved here from another file system"), "{said}");
    // Renamed it is the same one.
    for file in &files {
        std::fs::remove_file(file).unwrap();
    }
    rename(&hidden, &files);
    ground.assert_refused(&ground.other_home());
    assert!(ground.rows_at_home() >= told);
}

/// Guarantee: sqlite/discard
/// Guarantee: sqlite/other-homes
#[test]
fn what_a_keeper_saved_is_for_its_home() {
    let Some(ground) = begin("what_a_keeper_saved_is_for_its_home") else { return };
    let told = ground.leave_rows("threshold=infinity", 11);
    assert!(ground.play("save", &ground.home()).starts_with("done"));
    ground.assert_refused(&ground.other_home());
    // Without the pool there is the copy, which is no other home's to drop.
    std::fs::remove_dir_all(ground.pool()).unwrap();
    let said = ground.assert_refused(&ground.other_home());
    assert!(said.contains("a keeper of that home may have saved them"), "{said}");
    assert_eq!(ground.play("recover", &ground.home()), "done: recover: Saved");
    assert!(ground.rows_at_home() >= told);
}
