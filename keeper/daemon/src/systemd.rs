//! The protocol of the service manager: a socket that listens already, and notifications of the
//! state. Without it nothing here does anything.
//!
//! The socket comes as standard input (`StandardInput=socket`).

use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use rustix::net::sockopt::{socket_acceptconn, socket_domain};

/// The socket that the service manager made, if there is one.
pub(crate) fn given_listener() -> Option<UnixListener> {
    let input = std::io::stdin();
    let listens = socket_acceptconn(input.as_fd()).unwrap_or(false)
        && socket_domain(input.as_fd()) == Ok(rustix::net::AddressFamily::UNIX);
    listens.then(|| input.as_fd().try_clone_to_owned().ok().map(UnixListener::from)).flatten()
}

/// Tells the service manager something, such as `READY=1`; see sd_notify(3).
pub(crate) fn notify(what: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
        return;
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // A process that does not listen misses nothing.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(what.as_bytes(), &address);
    }
}
