//! How much sockets hold: beyond the limit for all where we may, else up to it.

use std::os::fd::AsFd;

use rustix::net::sockopt;

/// Has a socket hold so many bytes that came, or as many as the host allows.
pub fn hold_received(socket: impl AsFd, bytes: usize) {
    let socket = socket.as_fd();
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, bytes);
    }
}

/// Has a socket hold so many bytes that are to leave, or as many as the host allows.
pub fn hold_sent(socket: impl AsFd, bytes: usize) {
    let socket = socket.as_fd();
    if sockopt::set_socket_send_buffer_size_force(socket, bytes).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, bytes);
    }
}
