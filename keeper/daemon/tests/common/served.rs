//! A keeper that serves, in a process of its own; programs that borrow from it, here and as other
//! users; and a client that says exactly what a test wants.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdfast_keeper::{Keeper, Phase, PhaseHook, ServePolicy, Served, Sources};
use holdfast_keeper_client::{Borrowed, Borrower, Client, ServedStatus};
use holdfast_region::{Places, RegionName};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Resource, Signal, getpid, kill_process, setrlimit};
use tempfile::TempDir;

use super::{Home, Player, config, hear_parent, say, soon, stat};

/// Pages on which a program stores the same number.
pub(crate) const PAGES: u64 = 200;

/// A home whose keeper serves, with the programs that other users run.
pub(crate) struct Serving {
    pub(crate) home: Home,
    public: TempDir,
    keeper: Option<Player>,
}

impl Serving {
    /// With what is said, such as `users=all regions=2`.
    pub(crate) fn new(options: &str) -> Serving {
        let home = Home::new();
        let public = public_directory();
        let mut serving = Serving { home, public, keeper: None };
        serving.start(options);
        serving
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.public.path().join("served.sock")
    }

    pub(crate) fn start(&mut self, options: &str) {
        let role = format!("serve {} {options}", self.socket().display());
        let keeper = Player::start(&self.home, role.trim_end());
        self.keeper = Some(keeper);
        assert!(soon(|| UnixStream::connect(self.socket()).is_ok()), "it does not listen");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.keeper.as_ref().unwrap().pid()
    }

    pub(crate) fn kill_keeper(&mut self) {
        self.keeper.take().unwrap().kill();
    }

    /// Whether it went by itself, for one that kills itself.
    pub(crate) fn is_gone(&mut self) -> bool {
        let gone = stat(self.pid()).map_or(true, |stat| stat.state == 'Z');
        if gone {
            self.kill_keeper();
        }
        gone
    }

    pub(crate) fn end_keeper(&mut self) {
        let keeper = self.keeper.take().unwrap();
        keeper.signal(Signal::TERM);
        keeper.finish();
    }

    pub(crate) fn borrower(&self) -> Borrower {
        Borrower::new(self.socket()).with_patience(Duration::from_secs(20))
    }

    pub(crate) fn open(&self, name: &str) -> Borrowed {
        self.borrower().open(name, 4 << 20, None).unwrap()
    }

    pub(crate) fn status(&self) -> ServedStatus {
        Client::new(self.home.socket()).status().unwrap().served.unwrap()
    }

    pub(crate) fn raw(&self) -> Raw {
        Raw::connect(&self.socket())
    }

    /// Descriptors that the keeper has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Sets how many descriptors the keeper may have, and says how many it might have before.
    pub(crate) fn limit_descriptors(&self, descriptors: u64) -> u64 {
        use rustix::process::{Rlimit, getrlimit, prlimit};
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap());
        let maximum = getrlimit(Resource::Nofile).maximum;
        let wanted = Rlimit { current: Some(descriptors), maximum };
        prlimit(pid, Resource::Nofile, wanted).unwrap().current.unwrap()
    }

    /// With a pool of so many MiB; none where that cannot be had.
    pub(crate) fn in_small_pool(mebibytes: u32) -> Option<Serving> {
        let probe = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
        if !probe.is_ok_and(|status| status.success()) {
            println!("not run: no user namespaces here");
            return None;
        }
        let (home, public) = (Home::new(), public_directory());
        let both = home.prepare_for_players();
        let script = format!(
            "mkdir -m 700 {0}/pool && mount -t tmpfs -o size={mebibytes}m,mode=700 none {0}/pool && exec \"$@\"",
            both.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
        command.arg(std::env::current_exe().unwrap());
        let mut serving = Serving { home, public, keeper: None };
        let role = format!("serve {}", serving.socket().display());
        serving.keeper = Some(Player::start_in(command, &both, &role));
        assert!(soon(|| UnixStream::connect(serving.socket()).is_ok()), "it does not listen");
        Some(serving)
    }

    /// A program of another user, in a role; none where this user cannot start one.
    pub(crate) fn program_of(&self, user: u32, role: &str) -> Option<Player> {
        if !rustix::process::geteuid().is_root() {
            println!("not run: programs of other users can be started by root only");
            return None;
        }
        // Where this program was built others may not go.
        let program = self.public.path().join("program");
        if !program.exists() {
            std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new(program);
        command.uid(user).gid(user).current_dir(self.public.path());
        let role = format!("{role} {}", self.socket().display());
        Some(Player::start_in(command, self.public.path(), &role))
    }
}

/// What the keeper calls a region of this user.
pub(crate) fn in_home(name: &str) -> RegionName {
    super::named(&format!("{}.{name}", key_name()))
}

/// The key of this user's regions.
pub(crate) fn key_name() -> String {
    format!("served.{}", holdfast_sys::file::effective_user())
}

/// Where everybody can go, and no other process can write.
fn public_directory() -> TempDir {
    let public = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::set_permissions(public.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    public
}

/// Stores a number on many pages of what is borrowed, as a program would through its mapping.
pub(crate) fn store_into(borrowed: &Borrowed, number: u64) {
    for page in 0..PAGES {
        borrowed.image().write_all_at(&number.to_le_bytes(), page * 4096).unwrap();
    }
}

/// What is there; none if it is torn.
pub(crate) fn load_from(borrowed: &Borrowed) -> Option<u64> {
    let numbers: Vec<u64> = (0..PAGES)
        .map(|page| {
            let mut bytes = [0; 8];
            borrowed.image().read_exact_at(&mut bytes, page * 4096).unwrap();
            u64::from_le_bytes(bytes)
        })
        .collect();
    numbers.iter().all(|number| *number == numbers[0]).then_some(numbers[0])
}

/// The roles of this module; whether it was one.
pub(crate) fn play_served(words: &[&str], home: &Path) -> bool {
    match words {
        ["serve", socket, options @ ..] => serve(home, socket, options),
        // Stores, says so, and waits.
        ["borrow", name, number, socket] => {
            let borrowed = Borrower::new(*socket).open(name, 4 << 20, None).unwrap();
            store_into(&borrowed, number.parse().unwrap());
            loop {
                say("here");
                hear_parent();
            }
        }
        // Stores number after number, with a commit of the first.
        ["store", name, socket] => {
            let mut borrowed = Borrower::new(*socket).open(name, 4 << 20, None).unwrap();
            store_into(&borrowed, 1);
            borrowed.commit(holdfast_region::Durability::Process).unwrap();
            say("here");
            for number in 2.. {
                store_into(&borrowed, number);
            }
        }
        // Asks on as many connections as there may be, and never stops.
        ["flood", socket] => {
            let mut all: Vec<Raw> = (0..16).map(|_| Raw::connect(Path::new(socket))).collect();
            say("here");
            for round in 0_u64.. {
                let index = (round % 16) as usize;
                if !all[index].send_some(&request(&serde_json::json!("list"))) {
                    all[index] = Raw::connect(Path::new(socket));
                }
                all[index].drop_answers();
            }
        }
        // One request, and what came of it.
        ["ask", what, name, socket] => {
            let borrower = Borrower::new(*socket);
            let said = match *what {
                "open" => borrower.open(name, 1 << 20, None).map(|mut borrowed| {
                    borrowed.close().unwrap();
                    "opened".to_owned()
                }),
                "retrieve" => borrower.open(name, 0, None).map(|_| "retrieved".to_owned()),
                "as-root" => borrower.open(name, 0, Some(0)).map(|_| "retrieved".to_owned()),
                "delete-as-root" => borrower.delete(name, Some(0)).map(|()| "deleted".to_owned()),
                "delete" => borrower.delete(name, None).map(|()| "deleted".to_owned()),
                "list" => borrower.list().map(|regions| format!("{} regions", regions.len())),
                "usage" => borrower.usage().map(|usage| format!("{} bytes", usage.bytes)),
                other => panic!("unknown question {other}"),
            };
            say(&said.unwrap_or_else(|error| error.to_string()));
        }
        _ => return false,
    }
    true
}

fn serve(home: &Path, socket: &str, options: &[&str]) {
    let mut policy = ServePolicy::at(socket);
    for option in options {
        let (name, value) = option.split_once('=').unwrap();
        let number = || value.parse::<u64>().unwrap();
        match name {
            "users" if value == "all" => policy.users = Served::All,
            "users" => {
                policy.users =
                    Served::Users(value.split(',').map(|user| user.parse().unwrap()).collect())
            }
            "bytes" => policy.quota.bytes = number(),
            "regions" => policy.quota.regions = number(),
            "connections" => policy.quota.connections = number() as usize,
            "total" => policy.total_bytes = number(),
            "patience" => policy.patience = Duration::from_millis(number()),
            "idle" => policy.idle = Duration::from_millis(number()),
            "descriptors" => {
                let limit =
                    rustix::process::Rlimit { current: Some(number()), maximum: Some(number()) };
                setrlimit(Resource::Nofile, limit).unwrap();
            }
            // The phase, and how often it passes before it is the last one.
            "dies" => {
                let (phase, passes) = value.split_once(':').unwrap();
                let phase =
                    Phase::ALL.into_iter().find(|found| format!("{found:?}") == phase).unwrap();
                let left = AtomicU32::new(passes.parse().unwrap());
                policy.phases = Some(PhaseHook(Arc::new(move |at| {
                    if at == phase && left.fetch_sub(1, Ordering::Relaxed) == 0 {
                        kill_process(getpid(), Signal::KILL).unwrap();
                    }
                })));
            }
            other => panic!("unknown option {other}"),
        }
    }
    let mut sources = Sources::default();
    sources.buttons = Some(Vec::new());
    sources.power_supply = home.join("supplies");
    sources.pressure = home.join("pressure");
    sources.serve = Some(policy);
    let mut config = config();
    // Rounds in the background come when a test asks for them.
    config.loss_window = Duration::from_secs(3600);
    let places = Places::at(home.join("home"), home.join("pool")).unwrap();
    Keeper::new(places, config).unwrap().run(&sources).unwrap();
}

/// A whole request.
fn request(ask: &serde_json::Value) -> Vec<u8> {
    let body = serde_json::json!({"version": 2, "ask": ask}).to_string();
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// A connection on which anything can be said.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
}

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Raw {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        Raw { stream }
    }

    /// An object with the version around what is asked.
    pub(crate) fn ask(&mut self, ask: &serde_json::Value) -> &mut Raw {
        self.ask_with(ask, &[])
    }

    pub(crate) fn ask_with(
        &mut self,
        ask: &serde_json::Value,
        given: &[BorrowedFd<'_>],
    ) -> &mut Raw {
        self.send(&request(ask), given);
        self
    }

    /// The same for one that may have been hung up on already.
    pub(crate) fn ask_quietly(&mut self, ask: &serde_json::Value) -> Option<serde_json::Value> {
        self.send_some(&request(ask));
        self.answer()
    }

    /// As much as goes now; whether the other side is there.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&self.stream, bytes, flags) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    pub(crate) fn drop_answers(&mut self) {
        let mut bytes = [0; 4096];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        while rustix::net::recv(&self.stream, &mut bytes, flags).is_ok_and(|(_, count)| count > 0) {
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], given: &[BorrowedFd<'_>]) {
        self.send_as(bytes, given, SendFlags::NOSIGNAL);
    }

    pub(crate) fn send_urgent(&mut self, bytes: &[u8], given: &[BorrowedFd<'_>]) {
        self.send_as(bytes, given, SendFlags::NOSIGNAL | SendFlags::OOB);
    }

    fn send_as(&mut self, bytes: &[u8], given: &[BorrowedFd<'_>], flags: SendFlags) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !given.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(given)));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, flags);
        assert_eq!(sent.unwrap(), bytes.len());
    }

    /// What is answered; none if the keeper hung up.
    pub(crate) fn answer(&mut self) -> Option<serde_json::Value> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).ok()?;
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        self.stream.read_exact(&mut body).ok()?;
        let reply: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(reply["version"], 2);
        Some(reply["answer"].clone())
    }

    /// The kind of refusal.
    pub(crate) fn refusal(&mut self) -> String {
        let answer = self.answer().expect("it hung up");
        answer["refused"]["kind"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Borrows a region, and says that it came.
    pub(crate) fn borrow(&mut self, name: &str) -> (serde_json::Value, OwnedFd, OwnedFd) {
        self.ask(&serde_json::json!({"open": {"name": name, "limit_bytes": 1 << 20}}));
        self.take_lent()
    }

    /// Receives a region, and says that it came.
    pub(crate) fn take_lent(&mut self) -> (serde_json::Value, OwnedFd, OwnedFd) {
        let lent = self.receive_lent();
        self.ask(&serde_json::json!("taken"));
        lent
    }

    pub(crate) fn receive_lent(&mut self) -> (serde_json::Value, OwnedFd, OwnedFd) {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut head = [0; 4];
        let mut into = [std::io::IoSliceMut::new(&mut head)];
        let received =
            recvmsg(&self.stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert_eq!(received.bytes, 4);
        let mut came: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                came.extend(descriptors);
            }
        }
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        self.stream.read_exact(&mut body).unwrap();
        let reply: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(came.len(), 2, "{reply}");
        let lease = came.pop().unwrap();
        (reply["answer"]["lent"].clone(), came.pop().unwrap(), lease)
    }

    pub(crate) fn is_hung_up(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// Whether a process still is the one that was there.
pub(crate) fn is_alive(pid: u32) -> bool {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::test_kill_process(pid).is_ok()
}

/// A descriptor to give away.
pub(crate) fn given(descriptor: &OwnedFd) -> [BorrowedFd<'_>; 1] {
    [descriptor.as_fd()]
}
