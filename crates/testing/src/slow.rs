//! Descriptors with a slow close or wake-up, as a hostile process would send them.
//!
//! Tests of descriptor accounts and wake accounts (`attach`, `ethernet`, `mx`) use them to check
//! that slow descriptors of one process do not delay others. The delay is the kernel's
//! (`SO_LINGER`, many epoll instances) and depends on the machine; [`LINGER`] is far longer than
//! any test, and a test must not wait for it. A process without enough descriptors panics.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::net::sockopt::set_socket_linger;

/// How long the last close of a [`lingering`] socket would block: far longer than any test.
pub const LINGER: Duration = Duration::from_secs(100);

/// Returns a socket that blocks in its last close because its peer never reads, and the peer.
///
/// # Panics
/// The loopback interface cannot be used.
pub fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    // A close lingers only on a blocking socket.
    socket.set_nonblocking(false).unwrap();
    set_socket_linger(&socket, Some(LINGER)).unwrap();
    (socket.into(), peer)
}

/// Watches `of` by so many epoll instances that each wake-up takes 100 us or more. The watches end
/// when the returned descriptors are closed.
///
/// # Panics
/// The process has too few descriptors.
pub fn watch_often(of: BorrowedFd<'_>) -> Vec<OwnedFd> {
    const EACH: usize = 140;
    let descriptors: Vec<OwnedFd> = (0..EACH).map(|_| of.try_clone_to_owned().unwrap()).collect();
    let watch = || {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for descriptor in &descriptors {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&poller, descriptor, epoll::EventData::new_u64(0), flags).unwrap();
        }
        poller
    };
    let pollers: Vec<OwnedFd> = (0..EACH).map(|_| watch()).collect();
    descriptors.into_iter().chain(pollers).collect()
}
