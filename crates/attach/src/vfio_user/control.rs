//! The control thread of a frontend: receives messages, sends replies, informs the dispatcher.
//!
//! DMA messages that lie in the socket together, up to [`DMA_BATCH_MAX`], share one epoch of guest
//! memory. Their replies wait until the dispatcher uses the epoch and, after an unmap, has dropped
//! all earlier epochs; the reply to a reset waits until the dispatcher has reset its state, and
//! that to the end of a resumption until the device is resumed. If an unmap or a reset is not
//! adopted within [`DMA_ACK_MS`] (4 s), or a resumption within 60 s, the conversation ends without
//! the reply ([`Reason::DispatcherLate`]), after the thread has withdrawn all memory of the guest
//! from the dispatcher ([`DmaTable::withdraw`](super::dma::DmaTable)); a map is answered then,
//! because the dispatcher uses less than was granted.
//!
//! All other messages are answered at once, in order. While the reply to a DMA, RESET or RESUME
//! message is due, the thread answers register reads, within [`READ_CHECK_MS`] (10 ms), up to the
//! first message of another kind: replies are matched by their identifiers, and a read changes no
//! state.
//!
//! A flood of messages uses half a processor in the long run, and floods of many frontends two
//! processors together ([`crate::allowance`]). While more than 7 TiB of the frontend's earlier
//! grants wait for `munmap` ([`has_unmap_backlog`]), messages stay unread. The thread waits for the
//! frontend, for the dispatcher and for the mapping of files, and never writes to a descriptor of
//! the frontend other than the socket. A drop of the dispatcher's end ends the thread after the
//! message in progress. `super::attachment` starts the thread, one for each frontend; its end, also
//! by a panic, reaches the dispatcher as a notice.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_host::fd::receive::UntrustedSocket;
use causeway_memory::{Map, has_unmap_backlog};
use rustix::io::Errno;

use super::device::{DeviceDescription, Registers};
use super::fault::Reason;
use super::interrupts::Vectors;
use super::link::Link;
use super::message::command;
use super::server::{Effect, Reply, Server};
use super::stream::{MessageStream, RawMessage, ReadOutcome};
use crate::allowance::Allowance;
use crate::limits::{
    DMA_ACK_MS, DMA_BATCH_MAX, FILE_MAPPING_NS, READ_CHECK_MS, READS_PER_CHECK, RESUME_ACK_MS,
    UNMAP_PAUSE_MS,
};

/// Starts the control thread of a frontend. Returns the dispatcher's end of its link.
///
/// # Errors
/// Returns the socket and the reason if the host has no thread or descriptor left.
pub(super) fn start(
    port: &str,
    stream: UntrustedSocket,
    description: DeviceDescription,
    registers: Arc<dyn Registers>,
    vectors: Arc<Vectors>,
) -> Result<Arc<Link>, (UntrustedSocket, Reason)> {
    let link = match Link::new() {
        Ok(link) => Arc::new(link),
        Err(errno) => return Err((stream, Reason::Thread(errno.into()))),
    };
    // A second reference returns the socket if no thread starts.
    let socket = Arc::new(std::sync::Mutex::new(Some(stream)));
    let (moved, end) = (Arc::clone(&socket), EndGuard(Arc::clone(&link)));
    let name: String = format!("vfio-{port}").replace('\0', "");
    let spawned = std::thread::Builder::new().name(name).spawn(move || {
        let end = end;
        let stream = take(&moved);
        drop(moved);
        if let Some(stream) = stream {
            let server = Server::new(description, registers, vectors);
            let ending = Control::new(stream, server, Arc::clone(&end.0)).run();
            end.0.publish_end(ending);
        }
    });
    match spawned {
        Ok(_detached) => Ok(link),
        Err(error) => match take(&socket) {
            Some(stream) => Err((stream, Reason::Thread(error))),
            None => Ok(link),
        },
    }
}

/// Takes the socket out of a cell.
fn take(cell: &std::sync::Mutex<Option<UntrustedSocket>>) -> Option<UntrustedSocket> {
    cell.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
}

/// Publishes the end of the thread, also after a panic.
struct EndGuard(Arc<Link>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.publish_end(Some(Reason::ThreadLost));
    }
}

/// Replies to DMA messages that wait for an epoch.
#[derive(Debug, Default)]
struct Batch {
    /// The replies, joined.
    replies: Vec<u8>,
    messages: usize,
    /// Memory was granted.
    granted: bool,
    /// Memory was revoked.
    revoked: bool,
}

/// A change that the dispatcher must adopt before its reply is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Memory was granted.
    Map,
    /// Memory was revoked: no earlier epoch may be in use.
    Unmap,
    /// The device was reset.
    Reset,
    /// The set-up of a resumed device is complete.
    Resume,
}

/// The state of the thread.
struct Control {
    stream: MessageStream,
    server: Server,
    link: Arc<Link>,
    /// The epoch that was published last.
    epoch: Arc<Map>,
    /// Earlier epochs that the dispatcher may still use. This thread drops them last, because to
    /// drop an epoch takes long if it has many grants.
    earlier: Vec<Arc<Map>>,
    /// The result of a read from the socket that waits for the reply to an earlier message.
    held: Option<ReadOutcome>,
    batch: Batch,
    allowance: Allowance,
    /// Mapped files that were charged.
    files_charged: u64,
    /// Time in which a resumption must be adopted.
    resume_ack: Duration,
}

impl Control {
    fn new(stream: UntrustedSocket, server: Server, link: Arc<Link>) -> Self {
        Self {
            stream: MessageStream::new(stream),
            server,
            link,
            epoch: Arc::default(),
            earlier: Vec::new(),
            held: None,
            batch: Batch::default(),
            allowance: Allowance::of_thread(),
            files_charged: 0,
            resume_ack: Duration::from_millis(RESUME_ACK_MS),
        }
    }

    /// Serves the frontend until the conversation ends. Returns the reason, or `None` if the
    /// frontend or the dispatcher closed the connection.
    fn run(mut self) -> Option<Reason> {
        // Mappings are charged to the peer until they are unmapped.
        let giver = self.stream.giver();
        let end = giver.serve(|| self.serve());
        // Before the frontend learns of the end: a stalled dispatcher must not reach memory that
        // the frontend then uses otherwise.
        if matches!(end, Err(Reason::DispatcherLate)) && !self.server.dma().withdraw() {
            return Some(Reason::MemoryKept);
        }
        match end {
            // The frontend closed the connection without waiting for its reply.
            Ok(()) | Err(Reason::Socket(Errno::PIPE | Errno::CONNRESET)) => None,
            Err(reason) => Some(reason),
        }
    }

    /// Handles messages until the frontend or the dispatcher closes.
    fn serve(&mut self) -> Result<(), Reason> {
        while !self.link.is_stopped() {
            if has_unmap_backlog(self.stream.giver().owner()) {
                self.flush()?;
                self.link.sleep(Duration::from_millis(UNMAP_PAUSE_MS));
                continue;
            }
            let outcome = match self.held.take() {
                Some(held) => held,
                None => self.stream.receive()?,
            };
            match outcome {
                ReadOutcome::Message(message) => self.handle(message)?,
                ReadOutcome::Nothing => {
                    self.flush()?;
                    if self.held.is_none() {
                        self.stream.wait_readable(Some(self.link.stop_fd()), None)?;
                    }
                }
                ReadOutcome::Closed => return Ok(()),
            }
            self.pause_if_spent();
        }
        Ok(())
    }

    /// Pauses if the thread has used its processor time up.
    fn pause_if_spent(&mut self) {
        let files = self.server.dma().files_mapped();
        let fresh = files.saturating_sub(self.files_charged);
        self.files_charged = files;
        if let Some(pause) = self.allowance.charge(fresh.saturating_mul(FILE_MAPPING_NS)) {
            self.link.sleep(pause);
        }
    }

    /// Handles one message. The reply to a DMA message is kept for the next [`Self::flush`].
    fn handle(&mut self, message: RawMessage) -> Result<(), Reason> {
        if !matches!(message.header.command, command::DMA_MAP | command::DMA_UNMAP) {
            self.flush()?;
            let (reply, effect) = self.server.handle(message)?;
            let is_open = self.publish(effect)?;
            return reply.filter(|_| is_open).map_or(Ok(()), |reply| self.send(&reply));
        }
        let (reply, effect) = self.server.handle(message)?;
        self.batch.granted |= effect == Effect::Granted;
        self.batch.revoked |= effect == Effect::Revoked;
        self.batch.messages = self.batch.messages.saturating_add(1);
        self.batch.replies.extend(reply.map(|reply| reply.bytes).unwrap_or_default());
        if self.batch.messages >= DMA_BATCH_MAX { self.flush() } else { Ok(()) }
    }

    /// Informs the dispatcher of an effect. Returns whether the reply may be sent.
    fn publish(&mut self, effect: Effect) -> Result<bool, Reason> {
        match effect {
            Effect::Doorbell(doorbell) => self.link.publish_doorbell(doorbell),
            Effect::Interrupts => self.link.publish_interrupts(),
            Effect::Reset => {
                let number = self.link.publish_reset();
                return self.wait_adopted(number, Change::Reset);
            }
            Effect::Resumed => {
                let number = self.link.publish_resumed();
                return self.wait_adopted(number, Change::Resume);
            }
            Effect::None | Effect::Granted | Effect::Revoked => {}
        }
        Ok(true)
    }

    /// Publishes the epoch of the batch, waits for the dispatcher, and sends the replies.
    fn flush(&mut self) -> Result<(), Reason> {
        if self.batch.messages == 0 {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        if batch.granted || batch.revoked {
            let epoch = self.server.epoch();
            self.earlier.push(std::mem::replace(&mut self.epoch, Arc::clone(&epoch)));
            let number = self.link.publish_map(epoch);
            let change = if batch.revoked { Change::Unmap } else { Change::Map };
            let is_open = self.wait_adopted(number, change)?;
            self.earlier.retain(|epoch| Arc::strong_count(epoch) > 1);
            if !is_open {
                return Ok(());
            }
        }
        self.stream.send(&batch.replies, &[], Some(self.link.stop_fd()))
    }

    /// Waits until the dispatcher has adopted a change that notice `number` reports, and answers
    /// register reads meanwhile. Returns `false` if one of the two ends is gone.
    ///
    /// # Errors
    /// Returns [`Reason::DispatcherLate`] if an unmap or a reset takes 4 s, or a resumption 60 s.
    fn wait_adopted(&mut self, number: u64, change: Change) -> Result<bool, Reason> {
        let began = Instant::now();
        let most = match change {
            Change::Resume => self.resume_ack,
            _ => Duration::from_millis(DMA_ACK_MS),
        };
        loop {
            let left = most.saturating_sub(began.elapsed());
            let limit = left.min(Duration::from_millis(READ_CHECK_MS));
            let earlier = if change == Change::Unmap { self.earlier.as_slice() } else { &[] };
            if self.link.wait_acknowledged(number, earlier, limit) {
                return Ok(true);
            }
            if self.link.is_stopped() || !self.answer_reads()? {
                return Ok(false);
            }
            if left.is_zero() {
                let is_map = change == Change::Map;
                return if is_map { Ok(true) } else { Err(Reason::DispatcherLate) };
            }
        }
    }

    /// Answers register reads up to the first message of another kind, which is held. Returns
    /// `false` if the frontend has closed the connection.
    fn answer_reads(&mut self) -> Result<bool, Reason> {
        for _ in 0..READS_PER_CHECK {
            if self.held.is_some() {
                break;
            }
            match self.stream.receive()? {
                ReadOutcome::Message(message) if message.header.command == command::REGION_READ => {
                    let (reply, _) = self.server.handle(message)?;
                    reply.map_or(Ok(()), |reply| self.send(&reply))?;
                }
                ReadOutcome::Nothing => break,
                outcome => self.held = Some(outcome),
            }
        }
        self.pause_if_spent();
        Ok(!matches!(self.held, Some(ReadOutcome::Closed)))
    }

    /// Sends a reply.
    fn send(&self, reply: &Reply) -> Result<(), Reason> {
        let fds: Vec<BorrowedFd<'_>> = reply.file.iter().map(|file| file.as_fd()).collect();
        self.stream.send(&reply.bytes, &fds, Some(self.link.stop_fd()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Registers without content.
    struct Empty;

    impl Registers for Empty {
        fn read(&self, _region: u32, _offset: u64, _into: &mut [u8]) {}

        fn write(&self, _region: u32, _offset: u64, _from: &[u8]) -> Option<usize> {
            None
        }

        fn reset(&self) {}
    }

    #[test]
    fn vfio_user_resumption_that_is_adopted_too_late_ends_the_conversation() {
        let description = DeviceDescription {
            regions: Vec::new(),
            interrupts: Vec::new(),
            flags: 0,
            may_resume: true,
        };
        let vectors = Arc::new(Vectors::new(&description));
        let server = Server::new(description, Arc::new(Empty), vectors);
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let stream = UntrustedSocket::from(std::os::fd::OwnedFd::from(ours));
        let link = Arc::new(Link::new().unwrap());
        let mut control = Control::new(stream, server, Arc::clone(&link));
        assert_eq!(control.resume_ack, Duration::from_secs(60));
        let limit = Duration::from_millis(50);
        control.resume_ack = limit;
        let since = Instant::now();
        let refused = control.publish(Effect::Resumed);
        assert!(matches!(refused, Err(Reason::DispatcherLate)), "{refused:?}");
        assert!(since.elapsed() >= limit && since.elapsed() < Duration::from_millis(DMA_ACK_MS));
    }
}
