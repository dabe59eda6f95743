//! Bounds of adapters and of the engine.

/// Queue pair number of multicast datagrams (InfiniBand specification, 9.6.2).
pub const MULTICAST_QPN: u32 = 0xff_ffff;
