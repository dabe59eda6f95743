//! The file with the record of an adapter, from which the next causewayd continues it.
//!
//! Only ports behind the holder have the file: their frontend stays connected while causewayd is
//! replaced. It lies beside the port's inner socket, with the extension `hca`, and must lie on a
//! memory file system (tmpfs), as the run directory does. Its length follows from the limits of the
//! port, about 65 MiB for the default limits; it takes memory as it is filled, within bounds
//! ([`crate::record_memory`]), and releases the memory with the guest's driver. The format is that
//! of [`causeway_mlx5::Record`].
//!
//! The service opens the file when the port is added, in the dispatcher's thread. If the host
//! refuses the file, or memory for it, the port works without a record; the first is logged, the
//! second is counted ([`RecordFile::refusals`]). A frontend that the holder resumes continues from
//! the content ([`RecordFile::restore`]); for any other frontend the record begins anew
//! ([`RecordFile::begin`]). A mapping that lost a page is made again when the driver ends
//! ([`RecordFile::end`]). The file is removed when the port is deleted, also by a stop of causewayd
//! that releases held ports, or that the failure of another dispatcher causes; otherwise the file
//! is kept when causewayd ends. Two daemons must not share it. [`crate::service`] and
//! [`crate::resume`] call it in the dispatcher's thread, a few system calls each time;
//! [`crate::adapter_port`] reads the counts.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_memory::{Mapping, View};
use causeway_mlx5::{Function, FunctionConfig, Record, RecordSpace, RestoreError, Restored};
use causeway_model::port::HELD_EXTENSION;
use causeway_verbs::{AdapterId, Subnet};

use crate::record_memory::{BUDGET, FileMemory, RecordBudget};

/// Extension of the file.
const EXTENSION: &str = "hca";

/// The file of a port.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    file: Arc<File>,
    view: View,
    budget: &'static RecordBudget,
    /// The function has the record, or the host has refused memory for it.
    has_begun: bool,
    /// Records that the host had no memory to begin.
    refusals: u64,
    /// Restorations that were refused because the record had ended an earlier process.
    quarantines: u64,
}

/// Returns the path of the file of the port at `socket`; `None` if the holder does not hold the
/// port.
fn path_of(socket: &Path) -> Option<PathBuf> {
    let is_held = socket.extension().is_some_and(|extension| extension == HELD_EXTENSION);
    is_held.then(|| socket.with_extension(EXTENSION))
}

impl RecordFile {
    /// Opens or creates the file of the port at `socket`, if the port is held.
    ///
    /// # Errors
    /// The host refuses the file, or it does not lie on a memory file system.
    pub fn of(socket: &Path, config: &FunctionConfig) -> io::Result<Option<Self>> {
        path_of(socket).map(|path| Self::open(path, config, &BUDGET)).transpose()
    }

    fn open(
        path: PathBuf,
        config: &FunctionConfig,
        budget: &'static RecordBudget,
    ) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        let len = Record::file_bytes(config);
        file.set_len(len as u64)?;
        let view = map(&file, len)?;
        let file = Arc::new(file);
        Ok(Self { path, file, view, budget, has_begun: false, refusals: 0, quarantines: 0 })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how often the host had no memory to begin a record.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Returns how often a record was not restored because it had ended an earlier process.
    pub fn quarantines(&self) -> u64 {
        self.quarantines
    }

    fn space(&self) -> RecordSpace {
        let memory = FileMemory::new(Arc::clone(&self.file), self.budget);
        RecordSpace::new(self.view.clone(), Box::new(memory))
    }

    /// Gives the function an empty record, unless it has one: its driver is a new one.
    pub fn begin(&mut self, function: &mut Function) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        match Record::create(self.space(), function.config()) {
            Ok(record) => function.set_record(record),
            // Later its driver would have objects that the record lacks.
            Err(_) => self.refusals = self.refusals.saturating_add(1),
        }
    }

    /// Notes that the driver ended, and the function has no objects. A function without a record
    /// gets one from the next [`Self::begin`].
    pub fn end(&mut self, function: &mut Function) {
        if self.view.is_poisoned() {
            self.refusals =
                self.refusals.saturating_add(function.record().map_or(0, Record::losses));
            function.remove_record();
            let len = self.view.len();
            let is_long = self.file.set_len(len as u64);
            if let Ok(view) = is_long.and_then(|()| map(&self.file, len)) {
                self.view = view;
            }
        }
        self.has_begun &= function.record().is_some();
    }

    /// Continues the function of an adapter from the record of an earlier process. The function
    /// must have its memory and registers back, and no objects. The caller confirms the record once
    /// the function was served ([`Record::confirm`]).
    ///
    /// # Errors
    /// [`RestoreError`]; the function has no objects, and an empty record.
    pub fn restore(
        &mut self,
        subnet: &mut Subnet<Function>,
        adapter: AdapterId,
    ) -> Result<Restored, RestoreError> {
        let restored = causeway_mlx5::restore(subnet, adapter, self.space());
        self.has_begun = restored.is_ok();
        if matches!(restored, Err(RestoreError::Interrupted { .. })) {
            self.quarantines = self.quarantines.saturating_add(1);
        }
        if let (Err(_), Some(own)) = (&restored, subnet.adapter_mut(adapter)) {
            self.begin(own.queues_mut());
        }
        restored
    }

    /// Removes the file of a deleted port.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Maps a file of `len` bytes.
fn map(file: &File, len: usize) -> io::Result<View> {
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(io::Error::other)?;
    View::new(Arc::new(mapping), 0, len).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> FunctionConfig {
        FunctionConfig {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            vectors: 4,
            queue_pairs_max: 64,
            completion_queues_max: 64,
            regions_max: 64,
            registered_bytes_max: 1 << 30,
            uar_bytes: 1 << 20,
        }
    }

    #[test]
    fn hca_record_file_is_continued_by_the_next_process_and_ends_with_the_port() {
        // The directory must lie on a memory file system.
        let dir = Path::new("/dev/shm").join(format!("causeway-hca-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("p.inner");
        let adapter_config = causeway_mlx5::adapter_config(&config());
        let start = || {
            let mut subnet = Subnet::new();
            let adapter = subnet.add(&adapter_config, Function::new(config())).unwrap();
            (subnet, adapter, RecordFile::of(&socket, &config()).unwrap().unwrap())
        };
        let (mut subnet, adapter, mut file) = start();
        let found = file.restore(&mut subnet, adapter);
        assert!(matches!(found, Err(RestoreError::Record(_))), "an empty file: {found:?}");
        let own = subnet.adapter(adapter).unwrap().queues();
        assert!(own.record().is_some_and(Record::is_complete), "the record begins anew");
        drop((subnet, file));
        let (mut subnet, adapter, mut file) = start();
        assert_eq!(file.restore(&mut subnet, adapter), Ok(Restored::default()));
        file.remove();
        assert!(!dir.join("p.hca").exists());
        assert!(RecordFile::of(&dir.join("p.sock"), &config()).unwrap().is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
