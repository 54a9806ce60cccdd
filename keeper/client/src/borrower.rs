//! The other side: a program that borrows a region from a keeper.
//!
//! Invariants:
//! - A keeper that dies takes nothing with it: the image is this program's too. The next request
//!   finds the next keeper, shows it the image, and goes on; each request may be made twice.
//! - If another program of the same user had the region in between, that is an error and not a
//!   silent overwriting.
//! - A keeper is not believed about sizes: what is mapped cannot shrink, which is looked at here.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_region::Durability;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::error::{KeeperError, Result};
use crate::served_wire::{
    DESCRIPTORS_LENT, LentAnswer, OwnRegion, RefusedKind, RegionRequest, SERVED_VERSION,
    ServedAnswer, ServedAsk, Usage,
};
use crate::stream::connect;
use crate::wire::{ANSWER_BYTES_MAX, LENGTH_BYTES, Request, frame, length, parse_answer};

/// How long an answer may take: a commit on slow flash takes long.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);
/// How long the next keeper may take to come.
const RESUME_PATIENCE: Duration = Duration::from_secs(5);
const RESUME_PAUSE: Duration = Duration::from_millis(20);

/// A client that borrows regions, or lists those to borrow.
#[derive(Debug, Clone)]
pub struct Borrower {
    socket: PathBuf,
    patience: Duration,
}

/// A region that this process has from a keeper, until [`Borrowed::close`], or until this is
/// dropped.
#[derive(Debug)]
pub struct Borrowed {
    from: Borrower,
    name: String,
    stream: Option<UnixStream>,
    token: String,
    image: File,
    /// Tells the next keeper that a process has the region.
    lease: OwnedFd,
    address: u64,
    backed_bytes: u64,
    limit_bytes: u64,
    is_new: bool,
}

impl Borrower {
    /// From the keeper that serves there.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Borrower {
        Borrower { socket: socket.into(), patience: RESUME_PATIENCE }
    }

    /// How long a keeper that is gone is waited for.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Borrower {
        Borrower { patience, ..self }
    }

    /// Borrows a region; makes it if there is none and `limit_bytes` is not 0. One that exists
    /// keeps its limit. `user` is whose it is, for programs that name one: the keeper serves only
    /// the user who asks.
    ///
    /// # Errors
    /// `NoKeeper`; `NotServed` with what the keeper says; `Protocol`.
    pub fn open(&self, name: &str, limit_bytes: u64, user: Option<u32>) -> Result<Borrowed> {
        let wanted = ServedAsk::Open(RegionRequest { name: name.to_owned(), limit_bytes, user });
        let attempt = |stream: UnixStream| {
            let lent = self.lent(&stream, &wanted, &[]);
            lent.map(|lent| (stream, lent))
        };
        // The absence of a keeper is reported at once. One that dies over it is waited for: the
        // next one finds the region made, or makes it.
        let (stream, (lent, image, lease)) = match attempt(self.connect()?) {
            Err(KeeperError::NoKeeper { .. }) => self.until_served(|| attempt(self.connect()?))?,
            other => other?,
        };
        Ok(Borrowed {
            from: self.clone(),
            name: name.to_owned(),
            stream: Some(stream),
            token: lent.token,
            image,
            lease,
            address: lent.address,
            backed_bytes: lent.backed_bytes,
            limit_bytes: lent.limit_bytes,
            is_new: lent.is_new,
        })
    }

    /// This user's regions.
    ///
    /// # Errors
    /// As [`Borrower::open`].
    pub fn list(&self) -> Result<Vec<OwnRegion>> {
        match self.ask(&ServedAsk::List)? {
            ServedAnswer::Listed(regions) => Ok(regions),
            other => Err(unexpected(&other)),
        }
    }

    /// What this user has, and may have.
    ///
    /// # Errors
    /// As [`Borrower::open`].
    pub fn usage(&self) -> Result<Usage> {
        match self.ask(&ServedAsk::Usage)? {
            ServedAnswer::Usage(usage) => Ok(usage),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes a region that no program has.
    ///
    /// # Errors
    /// As [`Borrower::open`].
    pub fn delete(&self, name: &str, user: Option<u32>) -> Result<()> {
        match self.ask(&ServedAsk::Delete { name: name.to_owned(), user })? {
            ServedAnswer::Deleted => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, ask: &ServedAsk) -> Result<ServedAnswer> {
        let stream = self.connect()?;
        self.exchange(&stream, ask, &[]).map(|(answer, _)| answer)
    }

    fn connect(&self) -> Result<UnixStream> {
        let failed = |source| KeeperError::NoKeeper { path: self.socket.clone(), source };
        let stream = connect(&self.socket, ANSWER_PATIENCE).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_PATIENCE)).map_err(failed)?;
        Ok(stream)
    }

    /// Asks for a region, and says that it arrived.
    fn lent(
        &self,
        stream: &UnixStream,
        ask: &ServedAsk,
        given: &[BorrowedFd<'_>],
    ) -> Result<(LentAnswer, File, OwnedFd)> {
        let (answer, descriptors) = self.exchange(stream, ask, given)?;
        let ServedAnswer::Lent(lent) = answer else { return Err(unexpected(&answer)) };
        let protocol = |what: &str| KeeperError::Protocol { what: what.to_owned() };
        let [image, lease]: [OwnedFd; 2] = descriptors
            .try_into()
            .map_err(|_| protocol("it lent a region without its two descriptors"))?;
        let image = File::from(image);
        let is_whole = holdfast_sys::file::cannot_shrink(&image).unwrap_or(false)
            && image.metadata().is_ok_and(|found| found.len() >= lent.limit_bytes)
            && lent.backed_bytes <= lent.limit_bytes;
        if !is_whole {
            return Err(protocol("the image that it lent could be cut off"));
        }
        self.send(stream, &ServedAsk::Taken, &[])?;
        Ok((lent, image, lease))
    }

    fn exchange(
        &self,
        stream: &UnixStream,
        ask: &ServedAsk,
        given: &[BorrowedFd<'_>],
    ) -> Result<(ServedAnswer, Vec<OwnedFd>)> {
        // A word that was said before the first question is its answer: too many connections, say.
        let sent = self.send(stream, ask, given);
        let (mut head, mut descriptors) = ([0; LENGTH_BYTES], Vec::new());
        self.receive(stream, &mut head, &mut descriptors)
            .map_err(|lost| sent.err().unwrap_or(lost))?;
        let bytes = length(&head).filter(|&bytes| bytes <= ANSWER_BYTES_MAX);
        let bytes = bytes
            .ok_or_else(|| KeeperError::Protocol { what: "an answer without end".to_owned() })?;
        let mut body = vec![0; bytes];
        self.receive(stream, &mut body, &mut descriptors)?;
        match parse_answer(&body)? {
            ServedAnswer::Refused { kind, why } => Err(KeeperError::NotServed { kind, why }),
            answer => Ok((answer, descriptors)),
        }
    }

    fn send(&self, stream: &UnixStream, ask: &ServedAsk, given: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = frame(&Request { version: SERVED_VERSION, ask });
        // The socket's own timeout starts again after each signal.
        let until = Instant::now() + ANSWER_PATIENCE;
        let mut sent = 0;
        while sent < bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if sent == 0
                && !given.is_empty()
                && !control.push(SendAncillaryMessage::ScmRights(given))
            {
                return Err(self.lost(Errno::TOOBIG));
            }
            match sendmsg(
                stream,
                &[IoSlice::new(&bytes[sent..])],
                &mut control,
                SendFlags::NOSIGNAL,
            ) {
                Ok(count) => sent += count,
                Err(Errno::INTR) if Instant::now() < until => {}
                Err(errno) => return Err(self.lost(errno)),
            }
        }
        Ok(())
    }

    fn receive(
        &self,
        stream: &UnixStream,
        into: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<()> {
        let until = Instant::now() + ANSWER_PATIENCE;
        let mut filled = 0;
        while filled < into.len() {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_LENT))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut piece = [IoSliceMut::new(&mut into[filled..])];
            let received = recvmsg(stream, &mut piece, &mut control, RecvFlags::CMSG_CLOEXEC);
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    descriptors.extend(came);
                }
            }
            match received {
                Ok(message) if message.bytes == 0 => return Err(self.lost(Errno::CONNRESET)),
                Ok(message) => filled += message.bytes,
                Err(Errno::INTR) if Instant::now() < until => {}
                Err(errno) => return Err(self.lost(errno)),
            }
        }
        Ok(())
    }

    fn lost(&self, errno: Errno) -> KeeperError {
        KeeperError::NoKeeper { path: self.socket.clone(), source: io::Error::from(errno) }
    }

    /// Tries until a keeper answers, for a while. The end of a loan may still be under way, so
    /// `Held` is no last word when a region is resumed.
    fn until_served<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        loop {
            let failed = match attempt() {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let may_pass = match &failed {
                KeeperError::NoKeeper { .. } => true,
                KeeperError::NotServed { kind, .. } => {
                    matches!(kind, RefusedKind::Held | RefusedKind::Busy)
                }
                _ => false,
            };
            if !may_pass || started.elapsed() >= self.patience {
                return Err(failed);
            }
            std::thread::sleep(RESUME_PAUSE);
        }
    }
}

impl Borrowed {
    /// What the user calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the keeper serves.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.from.socket
    }

    /// The image: to be mapped shared, from its start.
    #[must_use]
    pub fn image(&self) -> &File {
        &self.image
    }

    /// Where it must be mapped, so that pointers in it are valid.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How much is allocated: what lies behind must not be touched until [`Borrowed::grow`] says
    /// so.
    #[must_use]
    pub fn backed_bytes(&self) -> u64 {
        self.backed_bytes
    }

    /// How far it may grow.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether it was made just now.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Has at least so much allocated, and says how much is.
    ///
    /// # Errors
    /// As [`Borrower::open`]; `NotServed` with `LimitReached`, `NoRoom`, or `Superseded` after the
    /// keeper had died.
    pub fn grow(&mut self, at_least_bytes: u64) -> Result<u64> {
        match self.ask(&ServedAsk::Grow { at_least_bytes })? {
            ServedAnswer::Grown { backed_bytes } if backed_bytes <= self.limit_bytes => {
                self.backed_bytes = backed_bytes.max(self.backed_bytes);
                Ok(self.backed_bytes)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Everything stored so far is brought to the keeper's region and survives what the level
    /// names; says which level that is. No process may store meanwhile.
    ///
    /// # Errors
    /// As [`Borrowed::grow`]. It can be tried again.
    pub fn commit(&mut self, durability: Durability) -> Result<Durability> {
        match self.ask(&ServedAsk::Commit { level: durability })? {
            ServedAnswer::Committed { level } => Ok(level),
            other => Err(unexpected(&other)),
        }
    }

    /// Everything goes to the store, and the region is free. No process may store meanwhile or
    /// afterwards.
    ///
    /// # Errors
    /// As [`Borrowed::commit`]. The region is this program's until it succeeds, or until this is
    /// dropped.
    pub fn close(&mut self) -> Result<()> {
        match self.ask(&ServedAsk::Close)? {
            ServedAnswer::Closed => {
                self.stream = None;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: &ServedAsk) -> Result<ServedAnswer> {
        let from = self.from.clone();
        from.until_served(|| {
            let stream = match self.stream.take() {
                Some(stream) => stream,
                None => self.resume()?,
            };
            let answered = from.exchange(&stream, ask, &[]);
            // Whatever was said, it can be asked again; without an answer another keeper is asked.
            if !matches!(answered, Err(KeeperError::NoKeeper { .. } | KeeperError::Protocol { .. }))
            {
                self.stream = Some(stream);
            }
            answered.map(|(answer, _)| answer)
        })
    }

    fn resume(&mut self) -> Result<UnixStream> {
        let stream = self.from.connect()?;
        let ask = ServedAsk::Resume { name: self.name.clone(), token: self.token.clone() };
        let (lent, _, lease) = self.from.lent(&stream, &ask, &[self.image.as_fd()])?;
        if lent.address != self.address || lent.limit_bytes != self.limit_bytes {
            return Err(KeeperError::Protocol { what: "it resumed another region".to_owned() });
        }
        self.token = lent.token;
        self.lease = lease;
        self.backed_bytes = self.backed_bytes.max(lent.backed_bytes);
        Ok(stream)
    }
}

fn unexpected(answer: &ServedAnswer) -> KeeperError {
    let text = format!("{answer:?}");
    let kind = text.split(['(', ' ']).next().unwrap_or_default();
    KeeperError::Protocol { what: format!("it answered {kind} to another question") }
}
