//! A watch of the site's keys, in a thread of its own.
//!
//! The thread `watch` blocks on the connection and sends each message to the main thread, with the
//! number of the watch: messages of an ended watch are ignored there. The thread waits while the
//! main thread has [`MESSAGES_MAX`](crate::limits::MESSAGES_MAX) (16) unread messages. At the end
//! of the stream, an error or a malformed line, the last message is [`WatchMessage::Cancelled`],
//! and the thread ends; the process begins the next watch. A dropped [`Watch`] shuts the socket
//! down, which ends the thread, and does not wait for it.

use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::SyncSender;

use crate::client::{Etcd, EtcdError, Result, WatchMessage, watch_message};
use crate::limits::WATCH_BYTES_MAX;
use crate::message::ProcessMessage;

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    /// Number of the watch, in its messages.
    pub number: u64,
    socket: TcpStream,
}

impl Watch {
    /// Begins a watch from a revision on. The request is sent in the caller's thread.
    ///
    /// # Errors
    /// etcd does not answer or refuses, or no thread can be started.
    pub fn begin(
        etcd: &mut Etcd,
        (prefix, revision): (&str, u64),
        number: u64,
        to: SyncSender<ProcessMessage>,
    ) -> Result<Self> {
        let (mut connection, socket) = etcd.watch(prefix, revision)?;
        let work = move || {
            let mut pending = Vec::new();
            let end = loop {
                match connection.read_line(&mut pending, WATCH_BYTES_MAX) {
                    Ok(Some(line)) => match watch_message(&line) {
                        Ok((message @ WatchMessage::Events(..), growth)) => {
                            if to.send(ProcessMessage::Watch(number, message, growth)).is_err() {
                                return;
                            }
                        }
                        Ok((WatchMessage::Cancelled(reason), _)) => break reason,
                        Err(error) => break format!("not a message of etcd: {error}"),
                    },
                    Ok(None) => break "etcd closed the connection".to_owned(),
                    Err(error) => break error.to_string(),
                }
            };
            // The main thread has ended if the message finds no receiver.
            let _ = to.send(ProcessMessage::Watch(number, WatchMessage::Cancelled(end), 0));
        };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(work);
        thread.map_err(EtcdError::Thread)?;
        Ok(Self { number, socket })
    }

    /// Returns a watch without a thread.
    #[cfg(test)]
    pub(crate) const fn over(socket: TcpStream) -> Self {
        Self { number: 0, socket }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A closed socket needs no shutdown.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
