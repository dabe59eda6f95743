//! Time that threads wait for a processor, which is not the daemon's fault.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest line of `schedstat`, in bytes: three numbers of 64 bits.
const LINE_BYTES_MAX: usize = 64;

/// The run-queue delays of the dispatchers and of the thread that made it.
#[derive(Debug)]
pub struct RunDelay(Vec<File>);

impl RunDelay {
    /// Watches this thread and the dispatchers of the process `pid`. Watches none where the
    /// kernel has no `schedstat`.
    pub fn of_dispatchers(pid: u32) -> Self {
        let own = rustix::thread::gettid().as_raw_nonzero();
        let own = PathBuf::from(format!("/proc/self/task/{own}"));
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let tasks = tasks.map(|task| task.unwrap().path()).filter(|task| is_dispatcher(task));
        let files = tasks.chain([own]).map(|task| File::open(task.join("schedstat")));
        Self(files.filter_map(Result::ok).collect())
    }

    /// Returns the total time for which the threads have waited for a processor.
    pub fn total(&self) -> Duration {
        self.0.iter().filter_map(read).sum()
    }
}

fn is_dispatcher(task: &Path) -> bool {
    std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("dispatcher"))
}

/// Reads the second number of `schedstat`: nanoseconds on a run queue (proc(5)).
fn read(file: &File) -> Option<Duration> {
    let mut line = [0; LINE_BYTES_MAX];
    let len = file.read_at(&mut line, 0).ok()?;
    let text = std::str::from_utf8(&line[..len]).ok()?;
    text.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}
