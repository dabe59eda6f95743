//! Host side of a guest's control channel.
//!
//! QEMU, or user-mode Linux, connects a serial port of the guest to a Unix socket of the test
//! process; in the guest, the agent (`vm/guest-tool`, the guest's `/init`) reads requests from it
//! and writes results, each a JSON line. [`crate::guest`] owns one [`Control`] for each guest.
//! [`Control::ask`] may be called from several threads at once; a thread of the channel reads
//! results and hands each to its request by number. When the guest or its VMM ends, or the guest
//! boots anew, all pending requests end without a result. The channel has no time limit of its own:
//! [`Control::ask`] blocks while the guest reads nothing and the socket is full. A line that is
//! neither a result nor a greeting, or is longer than 512 KiB, is ignored; the agent sends no longer
//! result.

use causeway_guest_tool::limits::MAX_LINE_BYTES;
use causeway_guest_tool::protocol::{CommandResult, Hello, Line, Operation, Request};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Requests without a result.
#[derive(Debug)]
struct State {
    /// Number of the next request.
    next_id: u64,
    /// Pending requests; dropped when the channel ends, which wakes their waiters.
    waiting: HashMap<u64, Sender<CommandResult>>,
}

/// A channel to one guest's agent.
#[derive(Debug)]
pub struct Control {
    stream: UnixStream,
    state: Arc<Mutex<State>>,
    hellos: Mutex<Receiver<Hello>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// Takes over the connection to a guest, which must block, and starts the thread that reads it.
    ///
    /// # Errors
    /// When its descriptor cannot be duplicated.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let reader = stream.try_clone()?;
        let state = Arc::new(Mutex::new(State { next_id: 1, waiting: HashMap::new() }));
        let (greet, hellos) = channel();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            read_lines(reader, &shared, &greet);
            lock(&shared).waiting.clear();
        });
        Ok(Self { stream, state, hellos: Mutex::new(hellos) })
    }

    /// Returns the next greeting of the agent, if any: there is one for each boot.
    pub fn hello(&self) -> Option<Hello> {
        lock(&self.hellos).try_recv().ok()
    }

    /// Sends a request. The returned channel yields the reply; it ends without a reply when the
    /// guest ends or boots anew. A reboot has no reply.
    ///
    /// # Errors
    /// When the request cannot be written.
    pub fn ask(&self, ask: Operation) -> io::Result<Receiver<CommandResult>> {
        let (answer, reply) = channel();
        let mut state = lock(&self.state);
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.insert(id, answer);
        let mut line = serde_json::to_vec(&Request { id, ask })?;
        line.push(b'\n');
        // Written under the lock: two requests must not interleave on the line.
        let sent = (&self.stream).write_all(&line);
        if sent.is_err() {
            state.waiting.remove(&id);
        }
        sent.map(|()| reply)
    }
}

fn read_lines(stream: UnixStream, state: &Mutex<State>, greet: &Sender<Hello>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut bytes = Vec::new();
        let limited = Read::take(&mut reader, MAX_LINE_BYTES as u64).read_until(b'\n', &mut bytes);
        if !matches!(limited, Ok(1..)) {
            return;
        }
        // Firmware may have written to the line before: skip to the start of the object.
        let begin = bytes.iter().position(|&b| b == b'{').unwrap_or(0);
        match serde_json::from_slice(&bytes[begin..]) {
            Ok(Line::Hello(hello)) => {
                // A new boot does not answer requests of the previous boot.
                lock(state).waiting.clear();
                let _ = greet.send(hello);
            }
            Ok(Line::Reply { id, ran }) => {
                if let Some(asker) = lock(state).waiting.remove(&id) {
                    let _ = asker.send(ran);
                }
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_guest_tool::limits::MAX_OUTPUT_BYTES;

    #[test]
    fn control_delivers_replies_and_wakes_waiters_at_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let control = Control::new(ours).unwrap();
        let first = control.ask(Operation::Reboot).unwrap();
        let second = control.ask(Operation::Reboot).unwrap();
        let third = control.ask(Operation::Reboot).unwrap();
        let ran = |code| CommandResult { code: Some(code), ..CommandResult::default() };
        for (id, code) in [(2, 22), (1, 11)] {
            let mut line = serde_json::to_vec(&Line::Reply { id, ran: ran(code) }).unwrap();
            line.push(b'\n');
            theirs.write_all(b"\x1bnoise").unwrap();
            theirs.write_all(&line).unwrap();
        }
        assert_eq!(second.recv().unwrap(), ran(22));
        assert_eq!(first.recv().unwrap(), ran(11));
        drop(theirs);
        assert!(third.recv().is_err());
    }

    #[test]
    fn control_delivers_two_full_streams_of_escapes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let control = Control::new(ours).unwrap();
        let reply = control.ask(Operation::Reboot).unwrap();
        let output = "\u{1}".repeat(MAX_OUTPUT_BYTES);
        let ran = CommandResult { stdout: output.clone(), stderr: output, ..Default::default() };
        let mut line = serde_json::to_vec(&Line::Reply { id: 1, ran: ran.clone() }).unwrap();
        line.push(b'\n');
        theirs.write_all(&line).unwrap();
        // The end of the channel ends the wait if the reply was dropped.
        drop(theirs);
        assert!(reply.recv().unwrap() == ran);
    }
}
