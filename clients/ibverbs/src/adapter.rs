//! Devices of the machine, and an opened device.
//!
//! Each call lists or queries the devices anew. A port is addressed by its number, from 1; only
//! GIDs of type RoCE v2 at the positions 0 to 255 are found. An opened device stays open until the
//! last object of it is dropped, in the process that opened it. Calls are system calls, of any
//! thread. `adapter::session` of the endpoint crate opens the device of a session.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi;
use crate::error::Error;
use crate::library::Library;

/// GIDs of a port that are searched, as many as the emulated adapter has and a [`Gid`] can name.
const GIDS_MAX: u32 = 256;

/// The process that created an object. Only this process destroys it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creator(u32);

impl Creator {
    /// Returns the calling process.
    pub fn now() -> Self {
        Self(std::process::id())
    }

    /// Returns whether the calling process is the creator.
    pub fn is_here(self) -> bool {
        self == Self::now()
    }
}

/// Returns the names of the machine's RDMA devices, sorted.
///
/// # Errors
/// [`Error::Library`], or [`Error::Call`] if the kernel has no RDMA support.
pub fn adapters() -> Result<Vec<String>, Error> {
    let list = DeviceList::new()?;
    let mut names: Vec<String> = list.all().map(|(_, name)| name).collect();
    names.sort();
    Ok(names)
}

/// The list of devices, freed when dropped.
struct DeviceList {
    library: &'static Library,
    start: NonNull<*mut abi::Device>,
    count: usize,
}

impl DeviceList {
    fn new() -> Result<Self, Error> {
        let library = Library::load()?;
        let mut count = 0;
        // SAFETY: `count` is written only.
        let start = unsafe { (library.get_device_list)(&mut count) };
        let failed = || call("ibv_get_device_list", "this machine", io::Error::last_os_error());
        let start = NonNull::new(start).ok_or_else(failed)?;
        Ok(Self { library, start, count: usize::try_from(count).unwrap_or(0) })
    }

    /// Returns the devices with their names.
    fn all(&self) -> impl Iterator<Item = (*mut abi::Device, String)> {
        (0..self.count).map(|index| {
            // SAFETY: the library's list has `count` devices, which live until it is freed, and
            // their names are strings with an end.
            unsafe {
                let device = *self.start.as_ptr().add(index);
                let name = CStr::from_ptr((self.library.get_device_name)(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list came from the library and is freed once; opened devices keep themselves.
        unsafe { (self.library.free_device_list)(self.start.as_ptr()) };
    }
}

/// Returns the error of a call.
pub(crate) fn call(call: &'static str, device: &str, source: io::Error) -> Error {
    Error::Call { call, device: device.to_owned(), source }
}

/// An opened device.
#[derive(Debug)]
pub(crate) struct Opened {
    pub library: &'static Library,
    pub context: NonNull<abi::Context>,
    pub name: String,
    creator: Creator,
}

// SAFETY: libibverbs permits calls for a context from any thread.
unsafe impl Send for Opened {}
// SAFETY: as for Send.
unsafe impl Sync for Opened {}

impl Opened {
    /// Returns the error of a call that set errno.
    pub fn error(&self, name: &'static str) -> Error {
        call(name, &self.name, io::Error::last_os_error())
    }

    /// Converts the result of a call that returns 0 or an error number.
    pub fn check(&self, name: &'static str, result: i32) -> Result<(), Error> {
        match result {
            0 => Ok(()),
            // Some functions return -1 and set errno.
            -1 => Err(self.error(name)),
            errno => {
                Err(call(name, &self.name, io::Error::from_raw_os_error(errno.saturating_abs())))
            }
        }
    }

    /// Returns the operations of the device.
    pub fn ops(&self) -> &abi::ContextOps {
        // SAFETY: the context lives as long as `self`, and its operations are set when it is
        // opened.
        unsafe { &(*self.context.as_ptr()).ops }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.creator.is_here() {
            // SAFETY: the context was opened once; every object of it holds this owner, so none is
            // left.
            unsafe { (self.library.close_device)(self.context.as_ptr()) };
        }
    }
}

/// A port of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Number, from 1.
    pub number: u8,
    /// Whether the link is up.
    pub is_active: bool,
    /// MTU of the path, as the library numbers it.
    pub(crate) mtu: u32,
}

/// An address of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gid {
    /// The address.
    pub bytes: [u8; 16],
    /// Position in the port's table.
    pub index: u8,
}

/// An RDMA device that this process has opened; closed with the last object of it.
#[derive(Debug, Clone)]
pub struct Adapter(pub(crate) Arc<Opened>);

impl Adapter {
    /// Opens a device by its name.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Library`], or [`Error::Call`] if the kernel refuses.
    pub fn open(name: &str) -> Result<Self, Error> {
        let list = DeviceList::new()?;
        let found = list.all().find(|(_, of)| of == name);
        let (device, _) = found.ok_or_else(|| Error::NoDevice(name.to_owned()))?;
        // SAFETY: the device is one of the list, which lives.
        let context = unsafe { (list.library.open_device)(device) };
        let failed = || call("ibv_open_device", name, io::Error::last_os_error());
        Ok(Self(Arc::new(Opened {
            library: list.library,
            context: NonNull::new(context).ok_or_else(failed)?,
            name: name.to_owned(),
            creator: Creator::now(),
        })))
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns a port by its number, from 1.
    ///
    /// # Errors
    /// [`Error::Call`] if there is no such port, or the device is gone.
    pub fn port(&self, number: u8) -> Result<Port, Error> {
        let mut attributes = abi::PortAttr::default();
        // SAFETY: the context lives, and the function writes at most the structure.
        let result = unsafe {
            (self.0.library.query_port)(self.0.context.as_ptr(), number, &mut attributes)
        };
        self.0.check("ibv_query_port", result)?;
        Ok(Port {
            number,
            is_active: attributes.state == abi::PORT_ACTIVE,
            mtu: attributes.active_mtu,
        })
    }

    /// Returns the RoCE v2 addresses of a port, in the order of its table.
    ///
    /// # Errors
    /// [`Error::Call`] if the device is gone.
    pub fn roce_v2_gids(&self, port: u8) -> Result<Vec<Gid>, Error> {
        let mut attributes = abi::PortAttr::default();
        // SAFETY: as in `port`.
        let result =
            unsafe { (self.0.library.query_port)(self.0.context.as_ptr(), port, &mut attributes) };
        self.0.check("ibv_query_port", result)?;
        let count = u32::try_from(attributes.gid_tbl_len).unwrap_or(0).min(GIDS_MAX);
        let mut gids = Vec::new();
        for index in 0..count {
            let mut entry = abi::GidEntry::default();
            // SAFETY: the function writes at most the given size of the structure.
            let result = unsafe {
                (self.0.library.query_gid)(
                    self.0.context.as_ptr(),
                    port.into(),
                    index,
                    &mut entry,
                    0,
                    size_of::<abi::GidEntry>(),
                )
            };
            // An empty entry is an error (ENODATA).
            let Ok(index) = u8::try_from(index) else { break };
            if result == 0 && entry.gid_type == abi::GID_TYPE_ROCE_V2 && entry.gid != [0; 16] {
                gids.push(Gid { bytes: entry.gid, index });
            }
        }
        Ok(gids)
    }

    /// Returns the first RoCE v2 address of a port; that of the link is enough.
    ///
    /// # Errors
    /// [`Error::NoGid`], or those of [`Self::roce_v2_gids`].
    pub fn roce_v2_gid(&self, port: u8) -> Result<Gid, Error> {
        let none = || Error::NoGid { device: self.0.name.clone(), port };
        self.roce_v2_gids(port)?.into_iter().next().ok_or_else(none)
    }
}
