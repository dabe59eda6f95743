//! Ports of kind `tap` with real TAP interfaces of the kernel, in namespaces that the tests make.
//! Without root or /dev/net/tun the tests pass without a check.

mod frames;
mod interfaces;
mod rig;
