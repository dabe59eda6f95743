//! Network namespaces: creation, entry and removal.
//!
//! Peers and rows with two hosts, and the peer with a bridge (`kernel`), create [`Namespaces`],
//! named after the benchmark's process, by `ip netns`; a thread that enters one stays there until
//! it ends. Root is needed; otherwise the error of `ip` is the reason for which a row or peer is
//! left out. The namespaces are removed on drop, and those of a killed benchmark by the next run
//! (`sweep`).

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::run;
use crate::peers::process::PREFIX;

/// Runs `ip` with these arguments.
pub fn ip(words: &str) -> Result<(), String> {
    run(Command::new("ip").args(words.split_whitespace())).map(drop)
}

/// Network namespaces; removed when dropped.
#[derive(Debug)]
pub struct Namespaces(Vec<String>);

impl Namespaces {
    /// Creates a namespace for each letter.
    pub fn new(letters: &[&str]) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |letter: &&str| format!("{PREFIX}{}-{number}{letter}", std::process::id());
        // Constructed first, so that all namespaces are removed when a later step fails.
        let spaces = Self(letters.iter().map(name).collect());
        for name in spaces.names() {
            ip(&format!("netns add {name}"))?;
        }
        Ok(spaces)
    }

    /// Returns the names of the namespaces.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the name of a namespace.
    pub fn name(&self, index: usize) -> Result<&str, String> {
        self.0.get(index).map(String::as_str).ok_or_else(|| "no such namespace".to_owned())
    }

    /// Moves this thread into a namespace.
    pub fn enter(&self, index: usize) -> Result<(), String> {
        let name = self.name(index)?;
        let file = File::open(format!("/run/netns/{name}")).map_err(|e| e.to_string())?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).map_err(|e| format!("{name}: {e}"))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
