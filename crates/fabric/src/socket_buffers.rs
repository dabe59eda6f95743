//! Kernel buffer sizes of sockets.
//!
//! Links, NICs, stream ports and [`crate::udp`] set them when they open or accept a socket, in the
//! thread that does so. With
//! CAP_NET_ADMIN a size may exceed the kernel's limit for all processes (`net.core.rmem_max`,
//! `wmem_max`); without it the size is cut to that limit. Failure is not reported: the socket then
//! keeps its default size. The module checks no range and can be called again for another size; no
//! call blocks.

use std::os::fd::AsFd;

use rustix::net::sockopt;

/// Sets the receive buffer of a socket to `bytes`, or to as many as the host allows.
pub fn set_receive_buffer(socket: impl AsFd, bytes: usize) {
    let socket = socket.as_fd();
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, bytes);
    }
}

/// Sets the send buffer of a socket to `bytes`, or to as many as the host allows.
pub fn set_send_buffer(socket: impl AsFd, bytes: usize) {
    let socket = socket.as_fd();
    if sockopt::set_socket_send_buffer_size_force(socket, bytes).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, bytes);
    }
}
