//! causewayd, the host daemon.

fn main() {}
