//! Test rigs that several crates share: temporary folders, waits, slow descriptors, message
//! endpoints, a vhost-user frontend, a fabric with guests. Only tests and fuzz targets import this
//! crate; it contains no production code and stands on no path of a frame.
//!
//! Unit tests must not use a rig that imports the crate under test: cargo builds that crate twice
//! then, and the types of the two builds differ. Integration tests have no such limit.
//!
//! | module | content | feature |
//! |---|---|---|
//! | [`wait`] | waits for a condition with a time limit | |
//! | [`folder`] | temporary folders | |
//! | [`numbers`] | numbers that are the same in every run | |
//! | [`slow`] | descriptors with a slow close or wake-up | |
//! | `messages` | endpoints of the message library in one process | `messages` |
//! | `frontend` | a vhost-user frontend that can break every rule | `frontend` |
//! | `fabric` | a fabric in the test's process, with native guests | `fabric` |
//! | `segments` | frames between these guests, with offloads | `fabric` |
//!
//! # Example
//! ```
//! use causeway_testing::folder::Folder;
//! use causeway_testing::wait::wait;
//!
//! let folder = Folder::new("example");
//! std::fs::write(folder.join("ready"), b"1").unwrap();
//! wait(|| folder.join("ready").exists(), || "the file is missing".to_owned());
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "fabric")]
pub mod fabric;
pub mod folder;
#[cfg(feature = "frontend")]
pub mod frontend;
#[cfg(feature = "messages")]
pub mod messages;
pub mod numbers;
#[cfg(feature = "fabric")]
pub mod segments;
pub mod slow;
pub mod wait;
