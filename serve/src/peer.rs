//! Whose program is at the other end of a loopback connection.
//!
//! A port of the loopback address is open to all users of the machine, and a program that is no
//! browser writes any header: so only sockets of this user are served.

use std::net::{IpAddr, SocketAddr};
use std::{fs, io};

use holdfast_sys::file::effective_user;

/// The sockets of IPv4, and those of IPv6.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Columns of a line of a table.
const LOCAL: usize = 1;
const REMOTE: usize = 2;
const UID: usize = 7;
const INODE: usize = 9;

/// Whether the program at `peer`, which is connected to `own`, runs as this user.
pub(crate) fn is_own_user(peer: SocketAddr, own: SocketAddr) -> io::Result<bool> {
    let [ipv4, ipv6] = TABLES;
    let owner = match own {
        // Some runtimes (Java, .NET) reach IPv4 through sockets of IPv6, which are in the table of
        // that, where there is one.
        SocketAddr::V4(_) => owner_in(&fs::read_to_string(ipv4)?, peer, own).or_else(|| {
            let table = fs::read_to_string(ipv6).unwrap_or_default();
            owner_in(&table, mapped(peer), mapped(own))
        }),
        SocketAddr::V6(_) => owner_in(&fs::read_to_string(ipv6)?, peer, own),
    };
    Ok(owner == Some(effective_user()))
}

/// An address of IPv4 as a socket of IPv6 has it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The user of the socket that has `peer` for its own address. One that its program has closed
/// already has no inode, and no user that the table tells.
fn owner_in(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let (peer, own) = (written(peer), written(own));
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = columns.get(LOCAL) == Some(&peer.as_str())
            && columns.get(REMOTE) == Some(&own.as_str());
        let is_open = columns.get(INODE).is_some_and(|inode| *inode != "0");
        (is_it && is_open).then(|| columns.get(UID)?.parse().ok()).flatten()
    })
}

/// As the kernel writes it: each 4 bytes of the address as one number of this machine.
fn written(address: SocketAddr) -> String {
    let number = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
    let ip = match address.ip() {
        IpAddr::V4(ip) => number(ip.octets()),
        IpAddr::V6(ip) => ip.octets().as_chunks().0.iter().map(|bytes| number(*bytes)).collect(),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    /// The look at the table accepts a connection of this user, and refuses another user's.
    ///
    /// Guarantee: serve/other-users
    #[test]
    fn socket_of_another_user_is_not_own() {
        for address in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (peer, own) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            assert!(is_own_user(peer, own).unwrap(), "{address}");
        }
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
                     0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1234        0 77 1\n";
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner_in(table, address(8080), address(50000)), Some(1234));
        assert_eq!(owner_in(table, address(50000), address(8080)), None);
        let closed = table.replace(" 77 ", " 0 ");
        assert_eq!(owner_in(&closed, address(8080), address(50000)), None);
    }

    /// A socket of IPv6 that is connected to an address of IPv4 is this user's, too.
    ///
    /// Guarantee: serve/other-users
    #[test]
    fn socket_of_both_versions_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let address = (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), own.port());
        let _client = TcpStream::connect(address).unwrap();
        let (_served, peer) = listener.accept().unwrap();
        assert!(peer.is_ipv4() && is_own_user(peer, own).unwrap(), "{peer}");
    }
}
