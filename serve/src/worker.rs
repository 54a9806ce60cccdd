//! The thread of one applet: starts it, makes its calls in their order, and ends it.
//!
//! Invariant: however the thread ends, the applet's process is gone, its heaps are closed, and the
//! page was told if it is still there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use axum::body::Bytes;
use holdfast_applet::{Applet, AppletError, Call, CallError};
use holdfast_identity::GivenName;
use tokio::sync::mpsc::Sender;

use crate::counted::Counted;
use crate::handle::Handle;
use crate::message::{self, Kind, StartBody};
use crate::open::{Opener, output_of};

/// How often an applet that is not called is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What a connection wants of an applet.
pub(crate) enum Order {
    Call(CallOrder),
    Close,
}

/// A call that waits for its turn.
pub(crate) struct CallOrder {
    pub(crate) call: u32,
    pub(crate) streams: bool,
    pub(crate) function: String,
    pub(crate) input: Bytes,
    /// Counts it until it is done.
    pub(crate) pending: PendingCall,
}

/// A call in the count of its connection.
pub(crate) struct PendingCall {
    pub(crate) count: Arc<std::sync::Mutex<(usize, usize)>>,
    pub(crate) bytes: usize,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let mut count = self.count.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *count = (count.0.saturating_sub(1), count.1.saturating_sub(self.bytes));
    }
}

/// An applet that is to be started.
pub(crate) struct Worker {
    pub(crate) applet: u32,
    pub(crate) path: PathBuf,
    pub(crate) page: GivenName,
    pub(crate) asked: StartBody,
    pub(crate) opener: Arc<Opener>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) outbox: Sender<Vec<u8>>,
    /// Of the connection.
    pub(crate) runtime: tokio::runtime::Handle,
    /// Counts it until it is gone.
    pub(crate) counted: Counted<GivenName>,
}

/// What became of a call.
enum After {
    Goes,
    /// The applet died.
    Died(String),
    /// The page is gone.
    Gone,
}

impl Worker {
    /// Runs until the applet dies, the page closes it, or the connection ends.
    pub(crate) fn run(self, orders: &Receiver<Order>) {
        // The applet keeps this, and the handle keeps the applet: so it must not keep the handle.
        let handle = Arc::downgrade(&self.handle);
        let is_wanted = move || handle.upgrade().is_some_and(|handle| !handle.is_closing());
        let opened = self.opener.open(self.path.clone(), &self.page, &self.asked, is_wanted);
        let (kind, words) = match opened {
            Ok(applet) => self.serve(Arc::new(applet), orders),
            Err(error) => (error.kind, self.for_page(error.kind, &error.words) + &error.output),
        };
        let ended = message::ended(self.applet, kind, &words);
        // This thread counts while it waits: a page that does not read gets no further ones.
        let room = self.runtime.block_on(self.outbox.reserve());
        // From here on the number and the place are free, before the page can know it.
        self.handle.end();
        drop(self.counted);
        if let Ok(room) = room {
            room.send(ended);
        }
    }

    /// Serves, ends the applet, and tells why.
    fn serve(&self, applet: Arc<Applet>, orders: &Receiver<Order>) -> (Kind, String) {
        let is_wanted = self.handle.serves(&applet);
        let notes = applet.weaker();
        let notes: Vec<_> = notes.iter().map(|note| self.for_page(Kind::Other, note)).collect();
        let started = message::started(self.applet, &applet.functions(), &notes);
        let (kind, words, is_orderly) = match is_wanted && self.send(started) {
            true => self.take_orders(&applet, orders),
            false => (Kind::Died, String::new(), false),
        };
        self.handle.let_go();
        // This is its only owner: dropping it kills what runs and closes its heaps.
        match Arc::into_inner(applet) {
            Some(applet) if is_orderly => match applet.close() {
                Ok(_) => (kind, words),
                Err(error) => (Kind::Other, self.for_page(Kind::Other, &error.to_string())),
            },
            _ => (kind, words),
        }
    }

    fn take_orders(&self, applet: &Applet, orders: &Receiver<Order>) -> (Kind, String, bool) {
        loop {
            let after = match orders.recv_timeout(LOOK) {
                Ok(Order::Call(order)) => self.call(applet, order),
                Ok(Order::Close) => return (Kind::Closed, String::new(), true),
                Err(RecvTimeoutError::Timeout) => match applet.cause_of_death() {
                    Some(error) => After::Died(self.of_death(&error)),
                    None => After::Goes,
                },
                Err(RecvTimeoutError::Disconnected) => After::Gone,
            };
            match after {
                After::Goes => {}
                After::Died(words) => return (Kind::Died, words, false),
                After::Gone => return (Kind::Died, String::new(), false),
            }
        }
    }

    fn call(&self, applet: &Applet, order: CallOrder) -> After {
        let CallOrder { call, streams, function, input, pending } = order;
        let result = match self.handle.begin(call) {
            false => Err(CallError::Cancelled),
            true if streams => self.stream(applet, call, &function, &input),
            true => applet.call(&function, &input),
        };
        let was_given_up = self.handle.is_given_up(call);
        self.handle.done(call);
        drop((pending, input));
        if self.handle.is_closing() && self.outbox.is_closed() {
            return After::Gone;
        }
        match result {
            Ok(bytes) => self.send_all(message::done(self.applet, call, &bytes)),
            Err(error) => {
                let (kind, code) = match &error {
                    _ if was_given_up && !matches!(error, CallError::Died(_)) => {
                        (Kind::Cancelled, 0)
                    }
                    CallError::Failed { code, .. } => (Kind::Failed, *code),
                    CallError::UnknownFunction { .. } => (Kind::UnknownFunction, 0),
                    CallError::InputTooLarge { .. } | CallError::ResultTooLarge { .. } => {
                        (Kind::TooLarge, 0)
                    }
                    CallError::Cancelled => (Kind::Cancelled, 0),
                    CallError::Died(_) => (Kind::Died, 0),
                    _ => (Kind::Other, 0),
                };
                let words = match &error {
                    CallError::Failed { message, .. } => message.clone(),
                    CallError::Died(error) => self.of_death(error),
                    // It names functions, as the applet does.
                    CallError::UnknownFunction { .. } => error.to_string(),
                    error => self.for_page(kind, &error.to_string()),
                };
                let is_told = self.send(message::failed(self.applet, call, kind, code, &words));
                match error {
                    CallError::Died(_) => After::Died(words),
                    _ if is_told => After::Goes,
                    _ => After::Gone,
                }
            }
        }
    }

    /// What of a failure's words is for the page.
    fn for_page(&self, kind: Kind, words: &str) -> String {
        self.opener.notices.for_page(&self.page, kind, words, Some(&self.path))
    }

    /// The same of the applet's death, with what it wrote before.
    fn of_death(&self, error: &AppletError) -> String {
        self.for_page(Kind::Died, &error.to_string()) + &output_of(error)
    }

    /// Sends the parts of a result as they come, and as the page takes them.
    fn stream(
        &self,
        applet: &Applet,
        call: u32,
        function: &str,
        input: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        for part in applet.stream(Call::new(function, input))? {
            let part = part?;
            let is_sent = self.handle.take_part(call)
                && message::part(self.applet, call, &part.bytes).all(|piece| self.send(piece));
            if !is_sent {
                // Dropping the stream cancels the call.
                return Err(CallError::Cancelled);
            }
        }
        Ok(Vec::new())
    }

    fn send_all(&self, pieces: impl Iterator<Item = Vec<u8>>) -> After {
        let mut pieces = pieces;
        match pieces.all(|piece| self.send(piece)) {
            true => After::Goes,
            false => After::Gone,
        }
    }

    /// Waits while the page does not read; `false` when it is gone.
    fn send(&self, message: Vec<u8>) -> bool {
        self.outbox.blocking_send(message).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use holdfast_fetch::AppletHash;
    use holdfast_region::{NameSpace, Places};

    use super::*;
    use crate::counted::{Counter, Share};
    use crate::discretion::Notices;
    use crate::limits::ServeLimits;
    use crate::message::LimitsBody;

    /// The thread of an applet that has ended counts until a page takes its end, and no longer: the
    /// place is free when the page reads of it.
    ///
    /// Guarantee: serve/applet-limits
    #[test]
    fn applet_counts_until_its_end_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::at(folder.path().join("home"), folder.path().join("pool")).unwrap();
        let opener = Opener {
            names: NameSpace::new(places),
            limits: ServeLimits::default(),
            notices: Notices::default(),
            making: Mutex::default(),
        };
        // No file is looked at for a start that asks for no memory.
        let limits = LimitsBody { memory_bytes: Some(0), ..LimitsBody::default() };
        let sha256 = AppletHash::from_bytes([0; 32]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let page = GivenName::parse("page").unwrap();
        let counter = Counter::new(Share::Fixed(1), 1);
        let handle = Arc::new(Handle::default());
        let (outbox, mut outgoing) = tokio::sync::mpsc::channel(1);
        outbox.try_send(b"unread".to_vec()).unwrap();
        let worker = Worker {
            applet: 1,
            path: PathBuf::from("applet"),
            page: page.clone(),
            asked: StartBody { sha256, heaps: Vec::new(), limits },
            opener: Arc::new(opener),
            handle: Arc::clone(&handle),
            outbox,
            runtime: runtime.handle().clone(),
            counted: counter.take(&page).unwrap(),
        };
        let (_orders, taken) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || worker.run(&taken));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!((handle.is_over(), counter.all()), (false, 1), "nothing was read");
        assert_eq!(outgoing.blocking_recv().unwrap(), b"unread");
        let ended = outgoing.blocking_recv().unwrap();
        assert_eq!((handle.is_over(), counter.all()), (true, 0));
        assert_eq!((ended[0], ended[5]), (0x87, Kind::Refused as u8));
        thread.join().unwrap();
    }
}
