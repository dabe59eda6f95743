//! Network namespaces that we make, enter and remove.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::run;
use crate::sweep::PREFIX;

/// Runs `ip` with these words.
pub fn ip(words: &str) -> Result<(), String> {
    run(Command::new("ip").args(words.split_whitespace())).map(drop)
}

/// Network namespaces; gone when dropped.
#[derive(Debug)]
pub struct Spaces(Vec<String>);

impl Spaces {
    /// Makes one for each letter.
    pub fn new(letters: &[&str]) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |letter: &&str| format!("{PREFIX}{}-{number}{letter}", std::process::id());
        // Named first, so that whatever was made goes when a later step fails.
        let spaces = Self(letters.iter().map(name).collect());
        for name in spaces.names() {
            ip(&format!("netns add {name}"))?;
        }
        Ok(spaces)
    }

    /// What they are called.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// What one of them is called.
    pub fn name(&self, index: usize) -> Result<&str, String> {
        self.0.get(index).map(String::as_str).ok_or_else(|| "no such namespace".to_owned())
    }

    /// Puts this thread into one of them.
    pub fn enter(&self, index: usize) -> Result<(), String> {
        let name = self.name(index)?;
        let file = File::open(format!("/run/netns/{name}")).map_err(|e| e.to_string())?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).map_err(|e| format!("{name}: {e}"))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
