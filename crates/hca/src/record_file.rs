//! The file with the record of an adapter, from which the next causewayd continues it.
//!
//! Only ports behind the holder have the file: their frontend stays connected while causewayd is
//! replaced. It lies beside the port's inner socket, with the extension `hca`, and must lie on a
//! memory file system (tmpfs), as the run directory does. Its length follows from the limits of the
//! port, about 70 MiB for the default limits; it takes memory as it is filled, and its content ends
//! with the guest's driver. The format is that of [`causeway_mlx5::Record`].
//!
//! The service opens the file when the port is added, in the dispatcher's thread. If the host
//! refuses the file, the port works without a record, and a warning is logged. A frontend that the
//! holder resumes continues from the content ([`RecordFile::restore`]); for any other frontend the
//! record begins anew ([`RecordFile::begin`]). The file is removed when the port is deleted, and kept
//! when causewayd ends. Two daemons must not share it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_memory::{Mapping, View};
use causeway_mlx5::{Function, FunctionConfig, Record, RestoreError, Restored};
use causeway_model::port::HELD_EXTENSION;
use causeway_verbs::{AdapterId, Subnet};

/// Extension of the file.
const EXTENSION: &str = "hca";

/// The file of a port.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    view: View,
    /// The function has the record.
    has_begun: bool,
}

/// Returns the path of the file of the port at `socket`; `None` if the holder does not hold the port.
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
        path_of(socket).map(|path| Self::open(path, config)).transpose()
    }

    fn open(path: PathBuf, config: &FunctionConfig) -> io::Result<Self> {
        let len = Record::file_bytes(config);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        file.set_len(len as u64)?;
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(io::Error::other)?;
        let view = View::new(Arc::new(mapping), 0, len).map_err(io::Error::other)?;
        Ok(Self { path, view, has_begun: false })
    }

    /// Gives the function an empty record, unless it has one: its driver is a new one.
    pub fn begin(&mut self, function: &mut Function) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        // The file has the length of the record, so the record can be made.
        if let Ok(record) = Record::create(self.view.clone(), function.config()) {
            function.set_record(record);
        }
    }

    /// Continues the function of an adapter from the record of an earlier process. The function must
    /// have its memory and registers back, and no objects.
    ///
    /// # Errors
    /// [`RestoreError`]; the function has no objects, and an empty record.
    pub fn restore(
        &mut self,
        subnet: &mut Subnet<Function>,
        adapter: AdapterId,
    ) -> Result<Restored, RestoreError> {
        let restored = causeway_mlx5::restore(subnet, adapter, self.view.clone());
        self.has_begun = restored.is_ok();
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
