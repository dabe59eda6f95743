//! TAP interfaces (Linux Documentation/networking/tuntap.rst): network interfaces of the kernel
//! with a program, this process, on the other side.
//!
//! A header of [`TAP_HEADER_BYTES`] (10) bytes in host byte order precedes each frame
//! (`IFF_VNET_HDR`): it describes a checksum or segmentation that is left to the receiver. A read
//! takes one frame that the kernel sent by the interface, a write gives it one. Reads and writes do
//! not block. [`TapInterface::open`] and [`TapInterface::state`] take the kernel's lock of network
//! interfaces, which other programs may hold for milliseconds.
//!
//! The descriptor stays valid if the interface is renamed or moves to another network namespace;
//! after the interface was deleted, reads and writes fail with EBADFD. The kernel gives an
//! interface of one queue to one descriptor at a time, and deletes an interface when its last
//! descriptor closes, unless it is persistent. The module parses no frame and keeps none;
//! `causeway-tap` calls it in the dispatcher's thread. [`TapInterface`] may be shared between
//! threads.

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use causeway_memory::{Cursor, Map};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::net::guest_io::write_frame;
use crate::net::interface_request::{ioctl, request_for};
use crate::net::ip_address;

/// Length of the header before each frame, in bytes.
pub const TAP_HEADER_BYTES: usize = 10;
/// The device file of the driver.
const DEVICE: &str = "/dev/net/tun";
/// `TUN_F_*`: checksums, and segments of TCP over IPv4 and IPv6, with ECN.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// `TUN_F_*`: segments of UDP over IPv4 and IPv6, since Linux 6.2.
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// How an interface is opened.
#[derive(Debug, Clone, Copy)]
pub struct TapOptions {
    /// Address that the interface gets; `None` keeps its address.
    pub address: Option<[u8; 6]>,
    /// IP address that the interface gets if it does not have it, and the length of the prefix in
    /// bits; `None` keeps the addresses.
    pub ip: Option<(IpAddr, u8)>,
    /// MTU of an interface that is created, in bytes.
    pub mtu: u16,
    /// Whether frames have unfinished checksums and segments.
    pub offloads: bool,
    /// Whether an interface that is created outlives the descriptor.
    pub persistent: bool,
}

/// Why an interface cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The driver is not loaded.
    #[error(
        "{DEVICE} does not exist: run `modprobe tun`, and let the service unit or container show the device (DeviceAllow=/dev/net/tun rw)"
    )]
    NoDriver,
    /// The device file may not be opened.
    #[error(
        "{DEVICE} may not be opened ({0}): permit the process to read and write it; in a service unit by DeviceAllow=/dev/net/tun rw and PrivateDevices=no"
    )]
    DriverDenied(io::Error),
    /// The interface is missing, and may not be created.
    #[error(
        "there is no interface {0}, and creating one needs the capability CAP_NET_ADMIN: run `ip tuntap add {0} mode tap vnet_hdr user {1} && ip link set {0} up` as root"
    )]
    Missing(String, u32),
    /// The interface belongs to another user.
    #[error(
        "interface {0} belongs to another user: create it with `ip tuntap add {0} mode tap vnet_hdr user {1}`"
    )]
    Denied(String, u32),
    /// Another process has the interface.
    #[error(
        "interface {0} is in use by another program or port: end that program, or name another interface"
    )]
    InUse(String),
    /// The interface is no TAP interface.
    #[error("interface {0} is no TAP interface: name another, or delete it with `ip link del {0}`")]
    Foreign(String),
    /// The interface does not get its IP address.
    #[error(
        "interface {0}: cannot set the address {1}: {2}; without the capability CAP_NET_ADMIN, run `ip address add {1} dev {0}` as root"
    )]
    Address(String, String, io::Error),
    /// Another error of the kernel.
    #[error("interface {0}: cannot {1}: {2}")]
    Host(String, &'static str, io::Error),
}

/// State of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TapState {
    /// The interface was deleted.
    Gone,
    /// The interface is in this network namespace.
    Here {
        /// Its name now.
        name: String,
        /// The administrator has set it up.
        is_up: bool,
        /// Largest payload of a frame, in bytes.
        mtu: usize,
        /// Its Ethernet address.
        address: [u8; 6],
    },
    /// The interface is in another network namespace, or its state cannot be read.
    Elsewhere {
        /// Its name now.
        name: String,
    },
}

/// A TAP interface that this process serves. Its reads and writes do not block.
#[derive(Debug)]
pub struct TapInterface {
    fd: OwnedFd,
    /// Socket for requests about interfaces of this namespace.
    requests: OwnedFd,
    /// The interface was created by the descriptor.
    pub is_created: bool,
    /// Segments of UDP may be written and read.
    pub takes_udp_segments: bool,
}

/// Returns the name in a request.
fn name_in(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// Makes a request with a number in place of an address.
fn ioctl_number(fd: BorrowedFd<'_>, code: libc::Ioctl, number: libc::c_uint) -> io::Result<()> {
    // SAFETY: the codes that are passed here (`TUNSETOFFLOAD`, `TUNSETPERSIST`, `TUNSETOWNER`) take
    // a number and access no memory.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), code, libc::c_ulong::from(number)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an integer of the driver.
fn ioctl_integer(fd: BorrowedFd<'_>, code: libc::Ioctl, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the codes that are passed here (`TUNSETVNETHDRSZ`, `TUNSETVNETLE`) read one integer.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), code, &raw const value) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

impl TapInterface {
    /// Opens an interface, or creates it if it is missing. A created interface belongs to the user
    /// of this process and is up. A name has at most 15 bytes; further bytes are ignored.
    ///
    /// # Errors
    /// The interface cannot be opened, created or configured.
    pub fn open(name: &str, options: &TapOptions) -> Result<Self, TapError> {
        let host = |what| move |e: io::Error| TapError::Host(name.to_owned(), what, e);
        let mut file = File::options();
        file.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let fd = file.open(DEVICE).map_err(|error| match errno(&error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => TapError::NoDriver,
            Some(Errno::ACCESS | Errno::PERM) => TapError::DriverDenied(error),
            _ => host("open its driver")(error),
        })?;
        let kind = (AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC);
        let requests = socket_with(kind.0, kind.1, kind.2, None);
        let requests = requests.map_err(|e| host("open a socket for requests")(e.into()))?;
        let mut tap =
            Self { fd: fd.into(), requests, is_created: false, takes_udp_segments: false };
        let was_there = tap.ask(libc::SIOCGIFFLAGS, name).is_ok();
        tap.attach(name, was_there)?;
        tap.is_created = !was_there;
        tap.configure(name, options)?;
        Ok(tap)
    }

    /// Binds the descriptor to the interface.
    fn attach(&self, name: &str, was_there: bool) -> Result<(), TapError> {
        let own = || name.to_owned();
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let bind = |flags: libc::c_int| {
            let mut request = request_for(name);
            request.ifr_ifru.ifru_flags = flags as libc::c_short;
            ioctl(self.fd.as_fd(), libc::TUNSETIFF, &mut request)
        };
        // An interface of several queues is opened with one only if the flag says so.
        let bound = match bind(flags) {
            Err(error) if was_there && errno(&error) == Some(Errno::INVAL) => {
                bind(flags | libc::IFF_MULTI_QUEUE)
            }
            bound => bound,
        };
        let user = rustix::process::geteuid().as_raw();
        bound.map_err(|error| match errno(&error) {
            Some(Errno::PERM) if was_there => TapError::Denied(own(), user),
            Some(Errno::PERM) => TapError::Missing(own(), user),
            Some(Errno::BUSY) => TapError::InUse(own()),
            Some(Errno::INVAL) if was_there => TapError::Foreign(own()),
            _ => TapError::Host(own(), "open it", error),
        })
    }

    /// Sets the header, the offloads and the address, and configures a created interface.
    fn configure(&mut self, name: &str, options: &TapOptions) -> Result<(), TapError> {
        let host = |what| move |e: io::Error| TapError::Host(name.to_owned(), what, e);
        let fd = self.fd.as_fd();
        // A persistent interface keeps the values of the last program.
        ioctl_integer(fd, libc::TUNSETVNETHDRSZ, TAP_HEADER_BYTES as libc::c_int)
            .and_then(|()| ioctl_integer(fd, libc::TUNSETVNETLE, 0))
            .map_err(host("set the header of frames"))?;
        let set = |offloads| ioctl_number(fd, libc::TUNSETOFFLOAD, offloads);
        self.takes_udp_segments = options.offloads && set(OFFLOADS | UDP_OFFLOADS).is_ok();
        if !self.takes_udp_segments {
            let offloads = if options.offloads { OFFLOADS } else { 0 };
            set(offloads).map_err(host("set its offloads"))?;
        }
        if let Some(address) = options.address {
            let mut request = request_for(name);
            // SAFETY: an all-zero address is valid: numbers only.
            let mut to: libc::sockaddr = unsafe { zeroed() };
            to.sa_family = libc::ARPHRD_ETHER;
            for (to, from) in to.sa_data.iter_mut().zip(address) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_hwaddr = to;
            // The driver permits the address to the owner of the descriptor, without a capability.
            ioctl(fd, libc::SIOCSIFHWADDR, &mut request).map_err(host("set its address"))?;
        }
        if self.is_created {
            self.finish(name, options).map_err(host("set its owner, MTU and state"))?;
        }
        let Some((ip, prefix)) = options.ip else { return Ok(()) };
        ip_address::set(name, ip, prefix)
            .map_err(|e| TapError::Address(name.to_owned(), format!("{ip}/{prefix}"), e))
    }

    /// Configures a created interface.
    fn finish(&self, name: &str, options: &TapOptions) -> io::Result<()> {
        // A later daemon without capabilities may open the interface.
        ioctl_number(self.fd.as_fd(), libc::TUNSETOWNER, rustix::process::geteuid().as_raw())?;
        ioctl_number(self.fd.as_fd(), libc::TUNSETPERSIST, options.persistent.into())?;
        let mut request = request_for(name);
        request.ifr_ifru.ifru_mtu = options.mtu.into();
        ioctl(self.requests.as_fd(), libc::SIOCSIFMTU, &mut request)?;
        let mut request = self.ask(libc::SIOCGIFFLAGS, name)?;
        // SAFETY: the answer to this request is the flags.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        ioctl(self.requests.as_fd(), libc::SIOCSIFFLAGS, &mut request)
    }

    /// Asks for a value of an interface of this namespace.
    fn ask(&self, code: libc::Ioctl, name: &str) -> io::Result<libc::ifreq> {
        let mut request = request_for(name);
        ioctl(self.requests.as_fd(), code, &mut request).map(|()| request)
    }

    /// Reads the state of the interface: four system calls at most.
    pub fn state(&self) -> TapState {
        let mut request = request_for("");
        if ioctl(self.fd.as_fd(), libc::TUNGETIFF, &mut request).is_err() {
            return TapState::Gone;
        }
        let name = name_in(&request);
        let codes = [libc::SIOCGIFFLAGS, libc::SIOCGIFMTU, libc::SIOCGIFHWADDR];
        let [Ok(flags), Ok(mtu), Ok(owner)] = codes.map(|code| self.ask(code, &name)) else {
            return TapState::Elsewhere { name };
        };
        // SAFETY: the answers to these requests are the flags, the MTU and the address.
        let (flags, mtu, owner) = unsafe {
            (flags.ifr_ifru.ifru_flags, mtu.ifr_ifru.ifru_mtu, owner.ifr_ifru.ifru_hwaddr)
        };
        let is_up = libc::c_int::from(flags) & libc::IFF_UP != 0;
        let mut address = [0; 6];
        for (to, from) in address.iter_mut().zip(owner.sa_data) {
            *to = from as u8;
        }
        TapState::Here { name, is_up, mtu: usize::try_from(mtu).unwrap_or(0), address }
    }

    /// Reads the next frame behind its header into `room`, and returns the length of both in bytes.
    /// A frame that is longer than `room` is cut.
    ///
    /// # Errors
    /// `EAGAIN` without a frame; `EBADFD` if the interface is gone; or the kernel's.
    pub fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, room)
    }

    /// Writes a frame whose bytes are private memory.
    ///
    /// # Errors
    /// `EIO` if the interface is down, `EBADFD` if it is gone; or the kernel's.
    pub fn write(&self, header: &[u8; TAP_HEADER_BYTES], frame: [&[u8]; 2]) -> Result<(), Errno> {
        let [head, body] = frame.map(io::IoSlice::new);
        rustix::io::writev(&self.fd, &[io::IoSlice::new(header), head, body]).map(drop)
    }

    /// Writes a frame with `head` in private memory and `len` bytes of guest memory, which the
    /// kernel reads by itself. Returns false without writing if they lie in too many pieces or are
    /// not granted.
    ///
    /// # Errors
    /// As for [`Self::write`]; `EFAULT` if the guest's memory was withdrawn.
    pub fn write_guest(
        &self,
        heads: [&[u8]; 2],
        (map, cursor): (&Map, Cursor<'_>),
        len: u64,
    ) -> Result<bool, Errno> {
        write_frame(self.fd.as_fd(), heads, map, cursor, len)
    }
}

impl AsFd for TapInterface {
    /// Readable while the kernel has a frame, and once the interface is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
