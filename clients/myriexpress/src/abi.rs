//! Types of the ABI, and how pointers of the caller are used.

use std::ffi::{c_char, c_void};

use crate::code::{Code, Return};

/// `mx_endpoint_addr_t`: by value, in two registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct EndpointAddr(pub [u64; 2]);

/// `mx_segment_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Segment {
    pub ptr: *mut c_void,
    pub len: u32,
}

/// `mx_status_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MxStatus {
    pub code: u32,
    pub source: EndpointAddr,
    pub match_info: u64,
    pub msg_length: u32,
    pub xfer_length: u32,
    pub context: *mut c_void,
}

/// `mx_param_t`: its value is a union, read as its eight bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Param {
    pub key: u32,
    pub value: [usize; 1],
}

/// `mx_error_handler_t`.
pub type ErrorHandler = extern "C" fn(*mut c_char, Code) -> Code;
/// `mx_unexp_handler_t`.
pub type UnexpHandler =
    extern "C" fn(*mut c_void, EndpointAddr, u64, u32, *mut c_void) -> std::ffi::c_int;

/// Writes to where the caller wants it.
pub fn put<T>(to: *mut T, value: T, otherwise: Return) -> Result<(), Return> {
    if to.is_null() {
        return Err(otherwise);
    }
    // SAFETY: the API asks the caller for a place of this type, or NULL; no alignment is assumed.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes to where the caller wants it, if it does.
pub fn put_if<T>(to: *mut T, value: T) {
    let _ = put(to, value, Return::BadBadBad);
}

/// Reads what the caller points to.
pub fn get<T: Copy>(from: *const T, otherwise: Return) -> Result<T, Return> {
    if from.is_null() {
        return Err(otherwise);
    }
    // SAFETY: the API asks the caller for a value of this type, or NULL; no alignment is assumed.
    Ok(unsafe { from.read_unaligned() })
}

/// The `at`th of what the caller points to.
pub fn get_at<T: Copy>(from: *const T, at: usize, otherwise: Return) -> Result<T, Return> {
    if from.is_null() {
        return Err(otherwise);
    }
    get(from.wrapping_add(at), otherwise)
}

/// Writes bytes to where the caller has room for them.
pub fn put_bytes(to: *mut c_void, bytes: &[u8], otherwise: Return) -> Result<(), Return> {
    if to.is_null() {
        return Err(otherwise);
    }
    // SAFETY: the caller has that much room there, as it said; `bytes` is private memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    Ok(())
}

/// A name that ends with a zero, of fewer than `max` bytes.
pub fn text(from: *const c_char, max: usize) -> Option<String> {
    let mut bytes = Vec::new();
    for at in 0..max {
        let byte = get_at(from.cast::<u8>(), at, Return::BadBadBad).ok()?;
        if byte == 0 {
            return String::from_utf8(bytes).ok();
        }
        bytes.push(byte);
    }
    None
}
