//! Every bound of this crate, in one place.

/// Processes that are attached to one board.
pub const CLIENTS_PER_BOARD_MAX: usize = 256;
/// Ways of one endpoint.
pub const WAYS_PER_ENDPOINT_MAX: usize = 1024;
/// Questions of one process that are answered before others have their turn.
pub const ASKS_PER_TURN_MAX: usize = 32;
/// Any endpoint that is free.
pub const ENDPOINT_ANY: u8 = 255;
