//! Test rigs that several crates share. Only tests, fuzz targets and simulations import this crate.
//!
//! Unit tests must not use a rig that imports the crate under test: cargo builds that crate twice
//! then, and the types of the two builds differ. Integration tests have no such limit.
//!
//! | module | content | feature |
//! |---|---|---|
//! | [`wait`] | waiting for a condition with a time limit | |
//! | [`folder`] | temporary folders | |
//! | [`numbers`] | numbers that are the same in every run | |
//! | [`slow`] | descriptors whose close or wake-up takes long | |
//! | `messages` | endpoints of the message library in one process | `messages` |
//! | `frontend` | a vhost-user front end that can break every rule | `frontend` |

#![forbid(unsafe_code)]

pub mod folder;
#[cfg(feature = "frontend")]
pub mod frontend;
#[cfg(feature = "messages")]
pub mod messages;
pub mod numbers;
pub mod slow;
pub mod wait;
