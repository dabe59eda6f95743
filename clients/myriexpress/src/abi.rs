//! Types of the ABI, and the only accesses to pointers of the caller.
//!
//! The layouts are those of `myriexpress.h`. Accesses check for NULL and nothing else: a wild
//! pointer is an error of the application and ends its process. Buffers of messages do not pass
//! here (`memory` validates them). A text is copied; a text of its declared maximum or longer, or
//! not in UTF-8, is invalid, and the call fails. Used by the functions of `call` and the modules
//! below them, in threads of the application; nothing is kept.

use std::ffi::{CStr, c_char, c_void};

use crate::code::{Code, Return};

/// `mx_endpoint_addr_t`: by value, in two registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct EndpointAddr(pub [u64; 2]);

/// `mx_segment_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MxSegment {
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

/// `mx_param_t`. Its value is a union, read as eight bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Param {
    pub key: u32,
    pub value: [usize; 1],
}

/// `mx_error_handler_t`.
pub type ErrorHandler = extern "C" fn(CallerPtr<c_char>, Code) -> Code;
/// `mx_unexp_handler_t`.
pub type UnexpHandler =
    extern "C" fn(*mut c_void, EndpointAddr, u64, u32, *mut c_void) -> std::ffi::c_int;

/// A pointer argument of an API call: NULL, or memory that is valid during the call, contains the
/// type that the API specifies, and is writable where the API requires it. In C it is a plain
/// pointer. In this crate only this module creates it from a pointer, so that it carries the
/// caller's guarantee. Alignment is not assumed.
#[derive(Debug)]
#[repr(transparent)]
pub struct CallerPtr<T>(*mut T);

impl<T> Clone for CallerPtr<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for CallerPtr<T> {}

impl<T> CallerPtr<T> {
    /// Creates the pointer argument of a call from Rust.
    ///
    /// # Safety
    /// The pointer must satisfy the guarantee of the type as long as it or a copy of it is used.
    #[cfg(test)]
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Returns whether the pointer is NULL.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl CallerPtr<c_char> {
    /// Returns a static text as an argument for a handler of the application.
    pub fn text(text: &'static CStr) -> Self {
        Self(text.as_ptr().cast_mut())
    }
}

/// Writes a value to memory of the caller. Fails with `otherwise` if the pointer is NULL.
pub fn put<T>(to: CallerPtr<T>, value: T, otherwise: Return) -> Result<(), Return> {
    if to.is_null() {
        return Err(otherwise);
    }
    // SAFETY: not NULL, so memory of this type by the guarantee of `CallerPtr`.
    unsafe { to.0.write_unaligned(value) };
    Ok(())
}

/// Writes a value to memory of the caller unless the pointer is NULL.
pub fn put_if<T>(to: CallerPtr<T>, value: T) {
    let _ = put(to, value, Return::BadBadBad);
}

/// Reads a value of the caller. Fails with `otherwise` if the pointer is NULL.
pub fn get<T: Copy>(from: CallerPtr<T>, otherwise: Return) -> Result<T, Return> {
    if from.is_null() {
        return Err(otherwise);
    }
    // SAFETY: not NULL, so a value of this type by the guarantee of `CallerPtr`.
    Ok(unsafe { from.0.read_unaligned() })
}

/// Reads the value at index `at` of an array of the caller. Fails with `otherwise` if the pointer
/// is NULL.
///
/// # Safety
/// The caller guarantees that the array has more than `at` values.
pub unsafe fn get_at<T: Copy>(
    from: CallerPtr<T>,
    at: usize,
    otherwise: Return,
) -> Result<T, Return> {
    if from.is_null() {
        return Err(otherwise);
    }
    get(CallerPtr(from.0.wrapping_add(at)), otherwise)
}

/// Writes bytes to memory of the caller, `after` bytes from its start. Fails with `otherwise` if
/// the pointer is NULL.
///
/// # Safety
/// The caller guarantees room for `after` bytes and `bytes`.
pub unsafe fn put_bytes<T>(
    to: CallerPtr<T>,
    after: usize,
    bytes: &[u8],
    otherwise: Return,
) -> Result<(), Return> {
    if to.is_null() {
        return Err(otherwise);
    }
    let to = to.0.cast::<u8>().wrapping_add(after);
    // SAFETY: the caller guarantees the room; `bytes` is private memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// Returns a NUL-terminated text of fewer than `max` bytes, or `None` if it is longer or not UTF-8.
pub fn text(from: CallerPtr<c_char>, max: usize) -> Option<String> {
    let mut bytes = Vec::new();
    for at in 0..max {
        // SAFETY: the text has bytes up to its NUL, and no earlier byte was NUL.
        let byte = unsafe { get_at(from, at, Return::BadBadBad) }.ok()?;
        if byte == 0 {
            return String::from_utf8(bytes).ok();
        }
        bytes.push(byte.cast_unsigned());
    }
    None
}
