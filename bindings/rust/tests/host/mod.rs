//! A host for tests: starts a program with a channel and a region at their descriptors, without a
//! jail, and calls it.
//!
//! Invariants: every wait is bounded, and a program that is left is killed.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use holdfast_channel::boot::BootRegion;
use holdfast_channel::header::FORGET;
use holdfast_channel::heaps::{HeapEntry, heap_fd};
use holdfast_channel::hello::Names;
use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_channel::{
    CHANNEL_FD, ChannelError, ChannelMemory, Endpoint, Handle, Header, HostWait, Layout, REGION_FD,
};
use holdfast_types::RequestStatus;

/// Longest that any message may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Where regions are mapped.
pub(crate) const ADDRESS: u64 = 0x2000_0000_0000;
/// Where a region's bytes begin in its file.
const DATA_OFFSET: u64 = 8192;
const STEP_BYTES: u64 = 4 << 20;
/// Behind the descriptors of all heaps that a test grants.
const FREE_FD: RawFd = REGION_FD + 4;

/// A region as a file in memory.
pub(crate) struct Image {
    file: File,
    pub(crate) region: BootRegion,
}

impl Image {
    pub(crate) fn new(limit_bytes: u64) -> Image {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(DATA_OFFSET + STEP_BYTES).unwrap();
        let region = BootRegion {
            address: ADDRESS,
            data_offset: DATA_OFFSET,
            backed_bytes: STEP_BYTES,
            limit_bytes,
            is_new: true,
            ..BootRegion::default()
        };
        Image { file, region }
    }

    /// The compartment of the thread with this number, from 1 on.
    pub(crate) fn compartment(number: u32) -> (String, Image) {
        let mut image = Image::new(4 * STEP_BYTES);
        image.region.address = ADDRESS + (u64::from(number) << 36);
        image.region.is_compartment = true;
        (format!("heap+thread-{number}"), image)
    }

    /// The heap's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.backed_bytes as usize];
        self.file.read_exact_at(&mut bytes, DATA_OFFSET).unwrap();
        bytes
    }

    /// Whether they are a heap in order.
    pub(crate) fn assert_sound(&self) {
        let bytes = self.bytes();
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        // SAFETY: the same bytes, aligned.
        let aligned =
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), bytes.len()) };
        let mut findings = Vec::new();
        holdfast_heap::check(aligned, &mut |finding| findings.push(finding));
        assert_eq!(findings, []);
    }
}

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Result(Vec<u8>),
    Failure { code: i32, text: String },
}

/// A running program, and this side of its channel.
pub(crate) struct Host {
    pid: i32,
    ended: mpsc::Receiver<ExitStatus>,
    status: Option<ExitStatus>,
    pub(crate) memory: Arc<ChannelMemory>,
    pub(crate) endpoint: Endpoint<HostWait>,
    pub(crate) image: Option<Image>,
    /// The files of further heaps.
    more: Vec<File>,
    pub(crate) names: Vec<String>,
    calls: u64,
    /// How the applet's requests were answered.
    pub(crate) grown: u32,
    pub(crate) commits: Vec<u32>,
    pub(crate) sealed: bool,
    /// The chunks of the last call.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// For the next call.
    pub(crate) forget: bool,
}

/// A descriptor of the same file with a number that no program is given: other tests open and close
/// files at the same time, so a low one may be free.
fn above(descriptor: &OwnedFd) -> OwnedFd {
    // SAFETY: a system call on a number.
    let copy = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FREE_FD) };
    assert!(copy >= FREE_FD);
    // SAFETY: the call above made it, and no other value owns it.
    unsafe { OwnedFd::from_raw_fd(copy) }
}

fn install(command: &mut Command, descriptors: Vec<(OwnedFd, RawFd)>) {
    let install = move || {
        for (descriptor, number) in &descriptors {
            // SAFETY: a system call on numbers; the new descriptor is not closed on exec.
            if unsafe { libc::dup2(descriptor.as_raw_fd(), *number) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec it only makes system calls.
    unsafe { command.pre_exec(install) };
}

impl Host {
    /// Starts a program; it need not serve.
    pub(crate) fn start(command: Command, layout: Layout, image: Option<Image>) -> Host {
        Host::start_with(command, layout, image, &[])
    }

    /// The same, with more heaps under their names.
    pub(crate) fn start_with(
        mut command: Command,
        layout: Layout,
        image: Option<Image>,
        more: &[(String, Image)],
    ) -> Host {
        let entry = |image: &Image| HeapEntry::new("heap", &image.region).unwrap();
        let mut heaps: Vec<_> = image.iter().map(entry).collect();
        heaps.extend(more.iter().map(|(name, image)| HeapEntry::new(name, &image.region).unwrap()));
        let memory = ChannelMemory::create(layout, &heaps, true).unwrap();
        let mut descriptors = vec![(above(&memory.descriptor().unwrap()), CHANNEL_FD)];
        if let Some(image) = &image {
            let file: OwnedFd = image.file.try_clone().unwrap().into();
            descriptors.push((above(&file), REGION_FD));
        }
        for (index, (_, image)) in more.iter().enumerate() {
            let file: OwnedFd = image.file.try_clone().unwrap().into();
            descriptors.push((above(&file), heap_fd(index + 1)));
        }
        install(&mut command, descriptors);
        let (endpoint, bell) = memory.host().unwrap();
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id() as i32;
        let (say, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let status = child.wait().unwrap();
            let _ = say.send(status);
            bell.peer_is_gone();
        });
        Host {
            pid,
            ended,
            status: None,
            memory,
            endpoint,
            image,
            more: more.iter().map(|(_, image)| image.file.try_clone().unwrap()).collect(),
            names: Vec::new(),
            calls: 0,
            grown: 0,
            commits: Vec::new(),
            sealed: false,
            chunks: Vec::new(),
            forget: false,
        }
    }

    /// Starts a program that serves.
    pub(crate) fn serving(command: Command, image: Option<Image>) -> Host {
        let mut host = Host::start(command, Layout::default(), image);
        host.listen().unwrap();
        host
    }

    /// Waits for the names of the exports.
    pub(crate) fn listen(&mut self) -> Result<(), ChannelError> {
        loop {
            let (header, payload) = self.receive()?;
            if let AppletMessage::Hello { .. } = AppletMessage::parse(&header).unwrap() {
                let names = Names::parse(&header, &payload).unwrap();
                self.names = names.iter().map(str::to_owned).collect();
                return Ok(());
            }
            self.serve_request(&header)?;
        }
    }

    pub(crate) fn receive(&mut self) -> Result<(Header, Vec<u8>), ChannelError> {
        let mut payload = Vec::new();
        let deadline = self.endpoint.deadline_in(TIMEOUT);
        let header = self.endpoint.receive(&mut payload, 1 << 30, deadline)?;
        Ok((header, payload))
    }

    pub(crate) fn send(&mut self, header: Header, payload: &[u8]) -> Result<(), ChannelError> {
        let deadline = self.endpoint.deadline_in(TIMEOUT);
        self.endpoint.send(&header, payload, deadline)
    }

    /// Sends a call and returns its number.
    pub(crate) fn begin(&mut self, name: &str, input: &[u8], buffer: Handle) -> u64 {
        let index = self.names.iter().position(|known| known == name);
        let index = index.unwrap_or_else(|| panic!("{name} is not exported")) as u32;
        self.calls += 1;
        let call = HostMessage::Call { call: self.calls, index, buffer, time_ns: 0 };
        let flags = if std::mem::take(&mut self.forget) { FORGET } else { 0 };
        self.send(Header { flags, ..Header::from(call) }, input).unwrap();
        self.calls
    }

    /// Waits for what comes of a call.
    pub(crate) fn finish(&mut self, number: u64) -> Result<Answer, ChannelError> {
        self.chunks.clear();
        loop {
            let (header, payload) = self.receive()?;
            match AppletMessage::parse(&header).unwrap() {
                AppletMessage::Chunk { call, .. } => {
                    assert_eq!(call, number);
                    self.chunks.push(payload);
                }
                AppletMessage::Result { call } => {
                    assert_eq!(call, number);
                    return Ok(Answer::Result(payload));
                }
                AppletMessage::Failure { call, code } => {
                    assert_eq!(call, number);
                    return Ok(Answer::Failure { code, text: String::from_utf8(payload).unwrap() });
                }
                _ => self.serve_request(&header)?,
            }
        }
    }

    pub(crate) fn try_call(&mut self, name: &str, input: &[u8]) -> Result<Answer, ChannelError> {
        let number = self.begin(name, input, Handle::default());
        self.finish(number)
    }

    /// Calls, and demands a result.
    pub(crate) fn call(&mut self, name: &str, input: &[u8]) -> Vec<u8> {
        match self.try_call(name, input).unwrap() {
            Answer::Result(bytes) => bytes,
            failure => panic!("{name}: {failure:?}"),
        }
    }

    fn serve_request(&mut self, header: &Header) -> Result<(), ChannelError> {
        match AppletMessage::parse(header).unwrap() {
            AppletMessage::Grow { heap: 0, at_least_bytes } => {
                self.grown += 1;
                let image = self.image.as_mut().unwrap();
                let wanted =
                    at_least_bytes.next_multiple_of(STEP_BYTES).min(image.region.limit_bytes);
                let reply = if at_least_bytes > wanted {
                    HostMessage::Reply { status: RequestStatus::LimitReached, value: 0 }
                } else {
                    image.file.set_len(DATA_OFFSET + wanted).unwrap();
                    image.region.backed_bytes = wanted;
                    HostMessage::Reply { status: RequestStatus::Ok, value: wanted }
                };
                self.send(reply.into(), &[])?;
            }
            AppletMessage::Grow { heap, at_least_bytes } => {
                let value = at_least_bytes.next_multiple_of(STEP_BYTES);
                self.more[heap as usize - 1].set_len(DATA_OFFSET + value).unwrap();
                self.send(HostMessage::Reply { status: RequestStatus::Ok, value }.into(), &[])?;
            }
            AppletMessage::Commit { heap: 0, level } => {
                self.commits.push(level);
                let status =
                    if level == 1 { RequestStatus::Unsupported } else { RequestStatus::Ok };
                self.send(HostMessage::Reply { status, value: 0 }.into(), &[])?;
            }
            AppletMessage::Seal => self.sealed = true,
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    /// In the mode `atomic`: what the applet has stored counts from now on.
    pub(crate) fn publish(&mut self) {
        let image = self.image.as_ref().unwrap();
        let memory = File::open(format!("/proc/{}/mem", self.pid)).unwrap();
        let mut bytes = vec![0; image.region.backed_bytes as usize];
        memory.read_exact_at(&mut bytes, ADDRESS).unwrap();
        image.file.write_all_at(&bytes, DATA_OFFSET).unwrap();
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a system call about a process that this value has started and not reaped.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }

    /// Waits until the program has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.ended.recv_timeout(TIMEOUT).unwrap();
        self.status = Some(status);
        status
    }

    /// Tells the program that there are no more calls, and waits for its end, which must be a good
    /// one.
    pub(crate) fn end(mut self) -> Option<Image> {
        self.send(HostMessage::End.into(), &[]).unwrap();
        let status = self.wait();
        assert!(status.success(), "{status}");
        self.image.take()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.status.is_none() && self.ended.try_recv().is_err() {
            self.signal(libc::SIGKILL);
        }
    }
}
