//! The C side of what sends and receives.

pub mod domain;
pub mod wait;
