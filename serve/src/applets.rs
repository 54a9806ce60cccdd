//! The applets of one connection.
//!
//! Invariants: their number, the time until a program is here, the calls that wait and the bytes of
//! these are bounded; dropping this ends all of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use holdfast_fetch::{AppletCache, CacheError, Incoming};
use holdfast_identity::GivenName;
use holdfast_sys::quiet_thread;

use crate::closing::Closing;
use crate::counted::{Counted, Counter, Full};
use crate::handle::Handle;
use crate::limits::ServeLimits;
use crate::message::{self, Kind, Request, StartBody};
use crate::open::Opener;
use crate::worker::{CallOrder, Order, PendingCall, Worker};

/// What all connections of a server have in common.
pub(crate) struct Host {
    pub(crate) opener: Arc<Opener>,
    pub(crate) cache: AppletCache,
    /// By the name of the page.
    pub(crate) applets: Arc<Counter<GivenName>>,
}

/// The applets of one connection.
pub(crate) struct Applets {
    host: Arc<Host>,
    page: GivenName,
    outbox: tokio::sync::mpsc::Sender<Vec<u8>>,
    table: HashMap<u32, Slot>,
    /// Calls that are not done, and the bytes of their inputs.
    pending: Arc<Mutex<(usize, usize)>>,
}

enum Slot {
    /// Its bytes are on their way.
    Receiving {
        incoming: Box<Incoming>,
        asked: Box<StartBody>,
        counted: Counted<GivenName>,
        pace: UploadPace,
    },
    Running {
        orders: Sender<Order>,
        handle: Arc<Handle>,
    },
}

impl Slot {
    fn is_over(&self) -> bool {
        matches!(self, Slot::Running { handle, .. } if handle.is_over())
    }
}

/// How far an upload is in time.
#[derive(Clone, Copy)]
struct UploadPace {
    began: Instant,
    progressed: Instant,
}

impl UploadPace {
    fn begin() -> UploadPace {
        let now = Instant::now();
        UploadPace { began: now, progressed: now }
    }

    /// When it is given up.
    fn deadline(self, limits: &ServeLimits) -> Instant {
        (self.progressed + limits.upload_idle).min(self.began + limits.upload_timeout)
    }
}

type Reply = Option<Vec<u8>>;

impl Applets {
    pub(crate) fn new(
        host: Arc<Host>,
        page: GivenName,
        outbox: tokio::sync::mpsc::Sender<Vec<u8>>,
    ) -> Applets {
        Applets { host, page, outbox, table: HashMap::new(), pending: Arc::default() }
    }

    /// Does what a page asks for, and returns what is to be answered at once.
    pub(crate) fn take(&mut self, request: Request) -> Result<Reply, Closing> {
        match request {
            Request::Hello { .. } => Err(Closing::protocol("the token was presented already")),
            Request::Start { applet, body } => self.start(applet, body),
            Request::Upload { applet, chunk } => self.upload(applet, &chunk),
            Request::Uploaded { applet } => self.uploaded(applet),
            Request::Call { applet, call, streams, function, input } => {
                let bytes = input.len();
                let slot = self.table.get(&applet);
                let Some(Slot::Running { orders, handle }) = slot.filter(|slot| !slot.is_over())
                else {
                    return Ok(Some(gone(applet, call)));
                };
                let pending = self.count(bytes)?;
                if !handle.add(call) {
                    return Err(Closing::protocol("two calls of an applet have one number"));
                }
                let order = CallOrder { call, streams, function, input, pending };
                match orders.send(Order::Call(order)) {
                    Ok(()) => Ok(None),
                    Err(_) => Ok(Some(gone(applet, call))),
                }
            }
            Request::Cancel { applet, call } => {
                if let Some(Slot::Running { handle, .. }) = self.table.get(&applet) {
                    handle.cancel(call);
                }
                Ok(None)
            }
            Request::More { applet, call, parts } => {
                if let Some(Slot::Running { handle, .. }) = self.table.get(&applet) {
                    handle.more(call, parts);
                }
                Ok(None)
            }
            Request::Close { applet } => match self.table.get(&applet) {
                // Behind the calls that wait.
                Some(Slot::Running { orders, handle }) => {
                    let is_gone = handle.wait_no_more() && orders.send(Order::Close).is_err();
                    // Its thread tells its end, unless it panicked. Told twice, it would end the
                    // next applet of the number.
                    let is_untold = is_gone && !handle.is_over();
                    Ok(is_untold.then(|| message::ended(applet, Kind::Closed, "")))
                }
                Some(Slot::Receiving { .. }) => {
                    self.table.remove(&applet);
                    Ok(Some(message::ended(applet, Kind::Closed, "")))
                }
                None => Ok(None),
            },
        }
    }

    /// When the next upload is given up.
    pub(crate) fn upload_deadline(&self) -> Option<Instant> {
        let limits = &self.host.opener.limits;
        let paces = self.table.values().filter_map(|slot| match slot {
            Slot::Receiving { pace, .. } => Some(pace.deadline(limits)),
            Slot::Running { .. } => None,
        });
        paces.min()
    }

    /// Gives up the uploads that took too long, and returns what their page is to be told.
    pub(crate) fn give_up_uploads(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let limits = &self.host.opener.limits;
        let given_up = self.table.extract_if(|_, slot| match slot {
            Slot::Receiving { pace, .. } => pace.deadline(limits) <= now,
            Slot::Running { .. } => false,
        });
        let words = format!(
            "the applet's program did not come in time: it may make no progress for {:?}, and take {:?} in all; \
             start it again",
            limits.upload_idle, limits.upload_timeout
        );
        given_up.map(|(applet, _)| message::ended(applet, Kind::Other, &words)).collect()
    }

    fn start(&mut self, applet: u32, asked: StartBody) -> Result<Reply, Closing> {
        self.table.retain(|_, slot| !slot.is_over());
        if self.table.contains_key(&applet) {
            return Err(Closing::protocol("two applets have one number"));
        }
        let refused = |kind, words: &str| Ok(Some(message::ended(applet, kind, words)));
        let max = self.host.opener.limits.applets_per_connection;
        if self.table.len() >= max {
            return refused(
                Kind::NoRoom,
                &format!("a page may run {max} applets; close one first"),
            );
        }
        let counted = match self.host.applets.take(&self.page) {
            Ok(counted) => counted,
            Err(Full::All) => {
                let words = "the server runs as many applets as it may; close other pages first, or let the user start it \
                             with a larger --applets";
                return refused(Kind::NoRoom, words);
            }
            Err(Full::Share(has)) => {
                let words = format!(
                    "this origin runs {has} applets, and the rest is kept for other pages; close one first, or let \
                     the user start the server with a larger --applets"
                );
                return refused(Kind::NoRoom, &words);
            }
        };
        match self.host.cache.find(asked.sha256) {
            Ok(Some(path)) => Ok(self.run(applet, path, asked, counted)),
            Ok(None) => {
                let max = self.host.opener.limits.applet_bytes;
                match self.host.cache.receive(asked.sha256, max) {
                    Ok(incoming) => {
                        let (incoming, asked) = (Box::new(incoming), Box::new(asked));
                        let pace = UploadPace::begin();
                        let slot = Slot::Receiving { incoming, asked, counted, pace };
                        self.table.insert(applet, slot);
                        Ok(Some(message::need(applet)))
                    }
                    Err(error) => Ok(Some(self.not_kept(applet, &error))),
                }
            }
            Err(error) => Ok(Some(self.not_kept(applet, &error))),
        }
    }

    fn upload(&mut self, applet: u32, chunk: &[u8]) -> Result<Reply, Closing> {
        let Entry::Occupied(mut slot) = self.table.entry(applet) else {
            // It was refused, and the page does not know it yet.
            return Ok(None);
        };
        let Slot::Receiving { incoming, pace, .. } = slot.get_mut() else {
            return Err(Closing::protocol("bytes come for an applet that runs"));
        };
        match incoming.write(chunk) {
            Ok(()) => {
                if !chunk.is_empty() {
                    pace.progressed = Instant::now();
                }
                Ok(None)
            }
            Err(error) => {
                slot.remove();
                Ok(Some(self.not_kept(applet, &error)))
            }
        }
    }

    fn uploaded(&mut self, applet: u32) -> Result<Reply, Closing> {
        match self.table.remove(&applet) {
            Some(Slot::Receiving { incoming, asked, counted, .. }) => {
                match self.host.cache.store(*incoming) {
                    Ok(path) => Ok(self.run(applet, path, *asked, counted)),
                    Err(error) => Ok(Some(self.not_kept(applet, &error))),
                }
            }
            Some(running @ Slot::Running { .. }) => {
                self.table.insert(applet, running);
                Err(Closing::protocol("the upload of an applet that runs ends"))
            }
            None => Ok(None),
        }
    }

    /// The end of an applet whose program cannot be read or stored.
    fn not_kept(&self, applet: u32, error: &CacheError) -> Vec<u8> {
        let kind = match error {
            CacheError::WrongHash { .. } => Kind::WrongHash,
            CacheError::TooLarge { .. } => Kind::TooLarge,
            _ => Kind::Other,
        };
        let notices = &self.host.opener.notices;
        message::ended(applet, kind, &notices.for_page(&self.page, kind, &error.to_string(), None))
    }

    /// Starts the thread of an applet.
    fn run(
        &mut self,
        applet: u32,
        path: PathBuf,
        asked: StartBody,
        counted: Counted<GivenName>,
    ) -> Reply {
        let (orders, taken) = mpsc::channel();
        let handle = Arc::new(Handle::default());
        let worker = Worker {
            applet,
            path,
            page: self.page.clone(),
            asked,
            opener: Arc::clone(&self.host.opener),
            handle: Arc::clone(&handle),
            outbox: self.outbox.clone(),
            runtime: tokio::runtime::Handle::current(),
            counted,
        };
        match quiet_thread::spawn("applet", move || worker.run(&taken)) {
            Ok(_) => {
                self.table.insert(applet, Slot::Running { orders, handle });
                None
            }
            Err(error) => {
                let words = format!("no thread for the applet: {error}");
                Some(message::ended(applet, Kind::NoRoom, &words))
            }
        }
    }

    /// Counts a call.
    fn count(&self, bytes: usize) -> Result<PendingCall, Closing> {
        let limits = &self.host.opener.limits;
        let mut count = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, all_bytes) = (count.0 + 1, count.1.saturating_add(bytes));
        // One call may be as large as a message.
        if calls > limits.pending_calls || calls > 1 && all_bytes > limits.pending_bytes {
            return Err(Closing::policy("too many calls wait; wait for results first"));
        }
        *count = (calls, all_bytes);
        Ok(PendingCall { count: Arc::clone(&self.pending), bytes })
    }
}

impl Drop for Applets {
    fn drop(&mut self) {
        for slot in self.table.values() {
            if let Slot::Running { handle, .. } = slot {
                handle.close();
            }
        }
    }
}

fn gone(applet: u32, call: u32) -> Vec<u8> {
    message::failed(applet, call, Kind::Died, 0, "the applet is not there any more")
}
