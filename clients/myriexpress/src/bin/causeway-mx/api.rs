//! A dynamically loaded library of the MX API: its functions and their types.
//!
//! The library is loaded by `dlopen` and stays loaded until [`Api`] is dropped, after all
//! endpoints. [`Api::load`] fails if the library cannot be loaded, lacks one of the functions, or
//! cannot be initialised (without a NIC). Its error handler is set to `MX_ERRORS_RETURN`, so that
//! failed calls return. Calls are not serialised: the tool uses one thread. `main` loads the
//! library at the start of every command but `man`; `endpoint` makes the calls on messages, `info`
//! and `measure` those on NICs. The module measures nothing and interprets only return codes and
//! names.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::error::Error;

/// Version of the API.
const MX_API: c_int = 0x301;
/// Maximum length of the name of a NIC, including its NUL.
pub const HOSTNAME_MAX: usize = 80;
/// Endpoint number for any free endpoint.
pub const ENDPOINT_ANY: u32 = u32::MAX;

/// `mx_endpoint_addr_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct MxAddress([u64; 2]);

/// `mx_segment_t`.
#[derive(Debug)]
#[repr(C)]
pub struct ApiSegment {
    /// The first byte.
    pub bytes: *mut c_void,
    /// Length, in bytes.
    pub len: u32,
}

/// `mx_status_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ApiStatus {
    /// Status code; 0 is success.
    pub code: u32,
    /// Sender of a receive.
    pub source: MxAddress,
    /// Match information of the message.
    pub info: u64,
    /// Length of the message, in bytes.
    pub msg_len: u32,
    /// Transferred bytes.
    pub len: u32,
    /// The pointer that the request was made with.
    pub context: *mut c_void,
}

impl Default for ApiStatus {
    fn default() -> Self {
        let context = std::ptr::null_mut();
        Self { code: 0, source: MxAddress::default(), info: 0, msg_len: 0, len: 0, context }
    }
}

/// `mx_endpoint_t` and `mx_request_t`.
pub type MxHandle = *mut c_void;

type OpenFn = unsafe extern "C" fn(u32, u32, u32, *mut c_void, u32, *mut MxHandle) -> u32;
type SendFn = unsafe extern "C" fn(
    MxHandle,
    *mut ApiSegment,
    u32,
    MxAddress,
    u64,
    *mut c_void,
    *mut MxHandle,
) -> u32;
type RecvFn = unsafe extern "C" fn(
    MxHandle,
    *mut ApiSegment,
    u32,
    u64,
    u64,
    *mut c_void,
    *mut MxHandle,
) -> u32;
type ConnectFn = unsafe extern "C" fn(MxHandle, u64, u32, u32, u32, *mut MxAddress) -> u32;
type TestFn = unsafe extern "C" fn(MxHandle, *mut MxHandle, *mut ApiStatus, *mut u32) -> u32;
type WaitFn = unsafe extern "C" fn(MxHandle, *mut MxHandle, u32, *mut ApiStatus, *mut u32) -> u32;
type InfoFn = unsafe extern "C" fn(MxHandle, u32, *mut c_void, u32, *mut c_void, u32) -> u32;

/// The functions of the library. Callers pass the arguments that the MX API requires: pointers to
/// values that are valid during the call, and message memory that is valid until its request has
/// ended.
#[derive(Debug)]
pub struct Api {
    pub open: OpenFn,
    pub close: unsafe extern "C" fn(MxHandle) -> u32,
    pub isend: SendFn,
    pub issend: SendFn,
    pub irecv: RecvFn,
    pub connect: ConnectFn,
    pub test: TestFn,
    pub wait: WaitFn,
    get_info: InfoFn,
    strerror: unsafe extern "C" fn(u32) -> *const c_char,
    strstatus: unsafe extern "C" fn(u32) -> *const c_char,
    to_name: unsafe extern "C" fn(u64, *mut c_char) -> u32,
    to_nic: unsafe extern "C" fn(*mut c_char, *mut u64) -> u32,
    finalize: unsafe extern "C" fn() -> u32,
    _library: Library,
}

/// Returns a text of the library.
///
/// # Safety
/// The text must be NUL-terminated.
unsafe fn text(from: *const c_char) -> String {
    // SAFETY: the caller guarantees the NUL.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// Returns the library in the directory of this program, or in `../lib`.
fn beside_us() -> Option<PathBuf> {
    let me = std::env::current_exe().ok()?;
    let here = me.parent()?;
    let all = [here.to_owned(), here.join("../lib")].map(|dir| dir.join("libmyriexpress.so"));
    all.into_iter().find(|library| library.exists())
}

impl Api {
    /// Loads and initializes a library: `from`, or the default.
    pub fn load(from: Option<&Path>) -> Result<Self, Error> {
        let from = from.map(Path::to_owned).or_else(beside_us);
        let from = from.unwrap_or_else(|| "libmyriexpress.so".into());
        // SAFETY: this is a library of the MX API. Its initializers have no effect on this program.
        let library = unsafe { Library::new(from) }?;
        // SAFETY: the functions have these types in every library of this API, and are called as
        // specified: the handler is a symbol of the library.
        let api = unsafe {
            let handler = *library.get::<unsafe extern "C" fn(*const c_void) -> *const c_void>(
                b"mx_set_error_handler",
            )?;
            let init = *library.get::<unsafe extern "C" fn(c_int) -> u32>(b"mx__init_api")?;
            let errors_return = **library.get::<*const *const c_void>(b"MX_ERRORS_RETURN")?;
            handler(errors_return);
            let api = Self {
                open: *library.get(b"mx_open_endpoint")?,
                close: *library.get(b"mx_close_endpoint")?,
                isend: *library.get(b"mx_isend")?,
                issend: *library.get(b"mx_issend")?,
                irecv: *library.get(b"mx_irecv")?,
                connect: *library.get(b"mx_connect")?,
                test: *library.get(b"mx_test")?,
                wait: *library.get(b"mx_wait")?,
                get_info: *library.get(b"mx_get_info")?,
                strerror: *library.get(b"mx_strerror")?,
                strstatus: *library.get(b"mx_strstatus")?,
                to_name: *library.get(b"mx_nic_id_to_hostname")?,
                to_nic: *library.get(b"mx_hostname_to_nic_id")?,
                finalize: *library.get(b"mx_finalize")?,
                _library: library,
            };
            api.check("mx_init", init(MX_API))?;
            api
        };
        Ok(api)
    }

    /// Returns the error of a failed call.
    #[inline]
    pub fn check(&self, call: &'static str, code: u32) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(self.failed(call, code)) }
    }

    #[cold]
    fn failed(&self, call: &'static str, code: u32) -> Error {
        let hint = match code {
            // MX_NO_DEV, MX_NO_DRIVER, MX_BOARD_UNKNOWN.
            5 | 6 | 8 => {
                " (a NIC is a port of causewayd of kind mx; set CAUSEWAY_MX to socket:PATH if its socket \
                 is not at the default path, or in a guest to adapter:DEVICE)"
            }
            _ => "",
        };
        // SAFETY: the library returns static NUL-terminated text.
        let text = unsafe { text((self.strerror)(code)) };
        Error::Call { call, text, hint }
    }

    /// Returns the error of a failed message.
    #[inline]
    pub fn ended(&self, status: &ApiStatus) -> Result<(), Error> {
        if status.code == 0 {
            return Ok(());
        }
        // SAFETY: the library returns static NUL-terminated text.
        Err(Error::Status(unsafe { text((self.strstatus)(status.code)) }))
    }

    /// Returns the number of NICs of this host.
    pub fn boards(&self) -> Result<u32, Error> {
        let mut count = 0_u32;
        let (null, into) = (std::ptr::null_mut(), (&raw mut count).cast());
        // SAFETY: the answer has four bytes.
        self.check("mx_get_info", unsafe { (self.get_info)(null, 1, null, 0, into, 4) })?;
        Ok(count)
    }

    /// Returns the addresses of the NICs of this host.
    pub fn nics(&self) -> Result<Vec<u64>, Error> {
        let mut nics = vec![0_u64; self.boards()? as usize + 1];
        let bytes = u32::try_from(nics.len() * 8).unwrap_or(u32::MAX);
        let (null, into) = (std::ptr::null_mut(), nics.as_mut_ptr().cast());
        // SAFETY: the buffer has `bytes` bytes.
        self.check("mx_get_info", unsafe { (self.get_info)(null, 2, null, 0, into, bytes) })?;
        nics.pop();
        Ok(nics)
    }

    /// Returns the name of a NIC.
    pub fn name(&self, nic: u64) -> Option<String> {
        let mut name = [0 as c_char; HOSTNAME_MAX];
        // SAFETY: the buffer has room for the longest name.
        let code = unsafe { (self.to_name)(nic, name.as_mut_ptr()) };
        // SAFETY: the library wrote a NUL-terminated name.
        (code == 0).then(|| unsafe { text(name.as_ptr()) })
    }

    /// Returns the NIC with a name or a MAC.
    pub fn nic(&self, peer: &str) -> Result<u64, Error> {
        let unknown = || Error::Peer(peer.to_owned());
        let name = CString::new(peer).map_err(|_| unknown())?;
        let mut nic = 0;
        // SAFETY: the name is NUL-terminated, and `nic` is a local variable.
        if unsafe { (self.to_nic)(name.as_ptr().cast_mut(), &raw mut nic) } == 0 {
            return Ok(nic);
        }
        mac(peer).ok_or_else(unknown)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // SAFETY: every endpoint borrows `self`, so none is open.
        unsafe { (self.finalize)() };
    }
}

/// Parses a MAC as the address of a NIC.
fn mac(text: &str) -> Option<u64> {
    let mut nic = 0;
    let mut count = 0;
    for byte in text.split(':') {
        let digits = byte.len() == 2 && byte.bytes().all(|b| b.is_ascii_hexdigit());
        nic = nic << 8 | u64::from_str_radix(byte, 16).ok().filter(|_| digits && count < 6)?;
        count += 1;
    }
    (count == 6).then_some(nic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_parses_six_bytes() {
        assert_eq!(mac("02:00:00:00:00:2a"), Some(0x0200_0000_002a));
        for wrong in
            ["", "02", "02:00:00:00:00", "02:00:00:00:00:2a:00", "0:0:0:0:0:0", "+2:00:00:00:00:00"]
        {
            assert_eq!(mac(wrong), None, "{wrong}");
        }
    }
}
