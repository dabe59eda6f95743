//! Types of the ABI, and how pointers of the caller are used.

use std::ffi::{CStr, c_char, c_void};

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
pub type ErrorHandler = extern "C" fn(Given<c_char>, Code) -> Code;
/// `mx_unexp_handler_t`.
pub type UnexpHandler =
    extern "C" fn(*mut c_void, EndpointAddr, u64, u32, *mut c_void) -> std::ffi::c_int;

/// A pointer that the application gave with a call: NULL, or memory that is there while the call
/// runs, holds what the API says of the argument, and may be written where the API says so. In C it is
/// a plain pointer; in this crate only `new` makes one of a pointer, so that it carries the
/// caller's promise. No alignment is assumed.
#[derive(Debug)]
#[repr(transparent)]
pub struct Given<T>(*mut T);

impl<T> Clone for Given<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Given<T> {}

impl<T> Given<T> {
    /// Returns the pointer of a call that was not made from C.
    ///
    /// # Safety
    /// The pointer is what the type says, as long as it or a copy of it is used.
    #[cfg(test)]
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Returns whether the application gave NULL.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Given<c_char> {
    /// Returns a text of the library, as a handler of the application is given it.
    pub fn text(text: &'static CStr) -> Self {
        Self(text.as_ptr().cast_mut())
    }
}

/// Writes a value where the caller wants it, or fails with `otherwise` if that is NULL.
pub fn put<T>(to: Given<T>, value: T, otherwise: Return) -> Result<(), Return> {
    if to.is_null() {
        return Err(otherwise);
    }
    // SAFETY: the caller gives a place of this type.
    unsafe { to.0.write_unaligned(value) };
    Ok(())
}

/// Writes a value where the caller wants it, if it does.
pub fn put_if<T>(to: Given<T>, value: T) {
    let _ = put(to, value, Return::BadBadBad);
}

/// Reads what the caller points to, or fails with `otherwise` if that is NULL.
pub fn get<T: Copy>(from: Given<T>, otherwise: Return) -> Result<T, Return> {
    if from.is_null() {
        return Err(otherwise);
    }
    // SAFETY: the caller gives a value of this type.
    Ok(unsafe { from.0.read_unaligned() })
}

/// Reads the `at`th value of a list of the caller, or fails with `otherwise` if that is NULL.
///
/// # Safety
/// The caller says that the list has more than `at` values.
pub unsafe fn get_at<T: Copy>(from: Given<T>, at: usize, otherwise: Return) -> Result<T, Return> {
    if from.is_null() {
        return Err(otherwise);
    }
    get(Given(from.0.wrapping_add(at)), otherwise)
}

/// Writes bytes where the caller has room for them, or fails with `otherwise` if that is NULL.
///
/// # Safety
/// The caller says that there is room for so many, `after` so many others.
pub unsafe fn put_bytes<T>(
    to: Given<T>,
    after: usize,
    bytes: &[u8],
    otherwise: Return,
) -> Result<(), Return> {
    if to.is_null() {
        return Err(otherwise);
    }
    let to = to.0.cast::<u8>().wrapping_add(after);
    // SAFETY: as the caller says; `bytes` is private memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// Returns a name that ends with a zero, of fewer than `max` bytes.
pub fn text(from: Given<c_char>, max: usize) -> Option<String> {
    let mut bytes = Vec::new();
    for at in 0..max {
        // SAFETY: a name is there up to its zero, and no byte before was one.
        let byte = unsafe { get_at(from, at, Return::BadBadBad) }.ok()?;
        if byte == 0 {
            return String::from_utf8(bytes).ok();
        }
        bytes.push(byte.cast_unsigned());
    }
    None
}
