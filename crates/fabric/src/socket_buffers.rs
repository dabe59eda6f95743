//! Kernel buffer sizes of sockets. With CAP_NET_ADMIN they exceed the limit for all processes;
//! otherwise they reach it at most.

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
