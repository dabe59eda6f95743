//! Ports on sockets with peers in this process, beside each other and beside a virtio-net guest.

mod datagram;
mod hostile;
mod rig;
mod stream;
