//! The last output lines of a process, and detection of fatal messages.
//!
//! [`crate::guest`], [`crate::daemon`], [`crate::bridge`] and [`crate::namespace`] let a
//! [`Console`] follow the standard output and error of a child process, in a thread for each stream
//! that ends with the stream. The last 60 lines of up to 512 bytes are kept for errors, without
//! control characters but tabs; earlier lines, and the rest of a longer line, are dropped. The
//! first line after which a guest does not recover (such as a kernel panic) is kept as fatal until
//! the console is dropped; the console acts on no process.

use crate::limits::{TAIL_LINE_BYTES, TAIL_LINES};
use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Console messages after which a guest does not recover.
const FATAL: [&str; 3] = ["Kernel panic", "KVM internal error", "failed to initialize kvm"];

/// Lines and counts of the streams.
#[derive(Debug, Default)]
struct State {
    /// The last lines.
    lines: VecDeque<String>,
    /// The line that has not ended.
    partial: Vec<u8>,
    total_bytes: u64,
    fatal: Option<String>,
}

/// A bounded tail of several streams, filled by its own threads.
#[derive(Debug, Clone, Default)]
pub struct Console {
    state: Arc<Mutex<State>>,
}

impl Console {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread that collects a stream to its end, and returns at once. Lines of several
    /// streams may mix.
    pub fn follow(&self, mut stream: impl Read + Send + 'static) {
        let console = self.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut chunk) {
                console.state().take(&chunk[..n]);
            }
        });
    }

    /// Returns the last lines, and the line that has not ended.
    #[must_use]
    pub fn tail(&self) -> String {
        let state = self.state();
        let mut lines: Vec<String> = state.lines.iter().cloned().collect();
        if !state.partial.is_empty() {
            lines.push(text(&state.partial));
        }
        lines.join("\n")
    }

    /// Returns the number of bytes read so far.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.state().total_bytes
    }

    /// Returns the first fatal line, if any.
    #[must_use]
    pub fn fatal(&self) -> Option<String> {
        self.state().fatal.clone()
    }
}

impl State {
    fn take(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                b'\r' => {}
                _ if self.partial.len() < TAIL_LINE_BYTES => self.partial.push(byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let line = text(&self.partial);
        self.partial.clear();
        if self.fatal.is_none() && FATAL.iter().any(|word| line.contains(word)) {
            self.fatal = Some(line.clone());
        }
        self.lines.push_back(line);
        if self.lines.len() > TAIL_LINES {
            self.lines.pop_front();
        }
    }
}

/// Returns printable text: a guest's console may contain any byte, and is printed on a terminal.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_tail_is_bounded_and_detects_a_panic() {
        let mut state = State::default();
        for i in 0..1000 {
            state.take(format!("line {i}\r\n").as_bytes());
        }
        state.take(&[b'x'; 100_000]);
        state.take(b"\n[1.0] Kernel panic - not syncing: oops\nafter\n\x1b[2Jpart");
        assert_eq!(state.lines.len(), TAIL_LINES);
        assert!(state.lines.iter().all(|l| l.len() <= TAIL_LINE_BYTES));
        assert_eq!(state.fatal.as_deref(), Some("[1.0] Kernel panic - not syncing: oops"));
        let console = Console { state: Arc::new(Mutex::new(state)) };
        assert!(console.tail().ends_with("after\n[2Jpart"));
    }
}
