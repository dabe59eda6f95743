//! The queue between the threads that log and the thread that writes to stderr (`log`).
//!
//! [`LogQueue::push`] never blocks: a line that finds the queue full is dropped and counted. The
//! writing thread takes one line after the other and blocks in the write for as long as the reader
//! of stderr does not read; after each line it reports newly dropped lines. Errors of the write are
//! ignored, and the line counts as written.
//!
//! [`LogQueue::flush`] polls every [`LOG_FLUSH_PAUSE`] (1 ms) and is meant for the end of the
//! process; lines that are queued meanwhile are not waited for. The thread ends with the process.
//! `super` owns the queue and formats the lines (`record`) before.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::LOG_FLUSH_PAUSE;

/// The log lines that are not written yet. A thread that pushes a line never waits for the reader.
#[derive(Debug)]
pub struct LogQueue {
    sender: SyncSender<String>,
    counts: Arc<Counts>,
}

/// Counters of lines. They only grow.
#[derive(Debug, Default)]
struct Counts {
    /// Lines put into the queue.
    queued: AtomicU64,
    /// Lines taken from the queue and written; those still queued are `queued - written`.
    written: AtomicU64,
    /// Lines that found the queue full.
    dropped: AtomicU64,
}

impl LogQueue {
    /// Starts the thread that writes to `sink`; at most `room` lines are queued.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(sink: impl Write + Send + 'static, room: usize) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(room);
        let counts = Arc::<Counts>::default();
        let writer = LogWriter { sink, counts: counts.clone(), reported: 0 };
        thread::Builder::new().name("log".into()).spawn(move || writer.run(&receiver))?;
        Ok(Self { sender, counts })
    }

    /// Queues a line, or drops and counts it if the queue is full.
    pub fn push(&self, line: String) {
        if self.try_push(line).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues a line, or returns it in the error.
    fn try_push(&self, line: String) -> Result<(), TrySendError<String>> {
        self.sender.try_send(line)?;
        self.counts.queued.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Waits until every line that is queued now is written, at most `limit`.
    pub fn flush(&self, limit: Duration) {
        let queued = self.counts.queued.load(Ordering::Acquire);
        let since = Instant::now();
        while self.counts.written.load(Ordering::Acquire) < queued && since.elapsed() < limit {
            thread::sleep(LOG_FLUSH_PAUSE);
        }
    }

    /// Queues a line, waits for room if the queue is full, and waits until the line is written; at
    /// most `limit` in total.
    pub fn push_and_flush(&self, mut line: String, limit: Duration) {
        let since = Instant::now();
        while let Err(TrySendError::Full(back)) = self.try_push(line) {
            if since.elapsed() >= limit {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            line = back;
            thread::sleep(LOG_FLUSH_PAUSE);
        }
        self.flush(limit.saturating_sub(since.elapsed()));
    }

    /// Returns the number of dropped lines.
    pub fn dropped_total(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }
}

/// State of the writing thread.
struct LogWriter<W> {
    sink: W,
    counts: Arc<Counts>,
    /// Dropped lines that have been reported in the log.
    reported: u64,
}

impl<W: Write> LogWriter<W> {
    /// Writes lines until the queue is dropped.
    fn run(mut self, lines: &Receiver<String>) {
        while let Ok(line) = lines.recv() {
            self.write(&line);
            self.counts.written.fetch_add(1, Ordering::Release);
            self.report_dropped();
        }
    }

    /// Uses one write per line, so that lines do not mix with those of a child process. A closed
    /// stderr is ignored.
    fn write(&mut self, line: &str) {
        let _ = self.sink.write_all(line.as_bytes()).and_then(|()| self.sink.flush());
    }

    /// Writes a warning about the lines dropped since the previous warning.
    fn report_dropped(&mut self) {
        let dropped_total = self.counts.dropped.load(Ordering::Relaxed);
        let dropped = dropped_total.saturating_sub(self.reported);
        if dropped > 0 {
            self.reported = dropped_total;
            self.write(&format!(
                "level=warn target={} msg=\"log lines dropped: stderr was not read in time; make \
                 the reader of the log faster, or set a lower level with log in [daemon]\" \
                 dropped={dropped} dropped_total={dropped_total}\n",
                module_path!()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Mutex, PoisonError};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// A reader of the log that reads once per permit.
    struct Sink {
        permits: Receiver<()>,
        text: Arc<Mutex<String>>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // After the sender of permits is dropped, all lines are read.
            let _ = self.permits.recv();
            let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stalled(room: usize) -> (LogQueue, Sender<()>, Arc<Mutex<String>>) {
        let (permit, permits) = channel();
        let text = Arc::<Mutex<String>>::default();
        (LogQueue::start(Sink { permits, text: text.clone() }, room).unwrap(), permit, text)
    }

    #[test]
    fn log_lines_beyond_the_queue_are_dropped_and_reported() {
        let (queue, permit, text) = stalled(4);
        for number in 0..100 {
            queue.push(format!("line {number}\n"));
        }
        let dropped = queue.dropped_total();
        assert!((95..=96).contains(&dropped), "{dropped}");
        queue.flush(Duration::from_millis(20));
        drop(permit);
        queue.flush(LIMIT);
        queue.push("after\n".into());
        queue.flush(LIMIT);
        let text = text.lock().unwrap().clone();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(text.contains(&format!(" dropped={dropped} dropped_total={dropped}\n")), "{text}");
        assert_eq!(text.matches("dropped=").count(), 1, "{text}");
        assert!(text.ends_with("after\n"), "{text}");
    }

    #[test]
    fn log_last_line_waits_for_room_and_gives_up_in_time() {
        let (queue, permit, text) = stalled(1);
        (0..10).for_each(|_| queue.push("filler\n".into()));
        let since = Instant::now();
        queue.push_and_flush("never\n".into(), Duration::from_millis(50));
        assert!(since.elapsed() < LIMIT);
        drop(permit);
        queue.push_and_flush("last\n".into(), LIMIT);
        assert!(text.lock().unwrap().contains("last\n"));
    }
}
