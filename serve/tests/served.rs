//! A server in this process, with a home of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use holdfast_region::Places;
use holdfast_serve::{ServeConfig, ServeError, ServeLimits, Server, Stopper};
use tempfile::TempDir;

use crate::client::{Client, Page};

/// An origin that every server of these tests allows.
pub(crate) const FRIEND: &str = "https://friend.example";

/// A home, a pool and a page, removed with it.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::create_dir(folder.path().join("web")).unwrap();
        std::fs::write(folder.path().join("web/index.html"), "<p>hello").unwrap();
        Home { folder }
    }

    pub(crate) fn web(&self) -> PathBuf {
        self.folder.path().join("web")
    }

    /// Where everything is.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    pub(crate) fn places(&self) -> Places {
        Places::at(self.home(), self.pool()).unwrap()
    }

    pub(crate) fn serve(&self) -> Served {
        self.serve_with(|_| {})
    }

    pub(crate) fn serve_with(&self, change: impl FnOnce(&mut ServeLimits)) -> Served {
        self.serve_at(SocketAddr::from(([127, 0, 0, 1], 0)), change).unwrap()
    }

    pub(crate) fn serve_at(
        &self,
        listen: SocketAddr,
        change: impl FnOnce(&mut ServeLimits),
    ) -> Result<Served, ServeError> {
        let mut limits = ServeLimits::default();
        limits.memory_bytes = 256 << 20;
        change(&mut limits);
        let config = ServeConfig {
            web: self.web(),
            listen,
            app: None,
            allow: vec![FRIEND.parse().unwrap()],
            asks: false,
            limits,
        };
        let server = Server::bind(config, self.places())?;
        let (address, stopper) = (server.address(), server.stopper());
        let thread = std::thread::spawn(move || server.run());
        Ok(Served { address, port: address.port(), stopper, thread: Some(thread) })
    }
}

/// A server that runs until this is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) port: u16,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn own(&self) -> Page {
        Page::own_at(self.address)
    }

    pub(crate) fn connect(&self) -> Client {
        self.own().connect()
    }

    /// Ends it, and waits until all is gone.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.end();
        }
    }
}

/// The bytes of an applet.
pub(crate) fn applet(name: &str) -> Vec<u8> {
    std::fs::read(holdfast_testkit::applet_file(name).unwrap()).unwrap()
}
