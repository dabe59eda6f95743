//! Maps errors and statuses of the endpoint and the engine to libfabric's error numbers and texts.
//!
//! Numbers are positive; the functions of the C interface negate them. Two causes share a number
//! only if an application need not distinguish them. For a failed operation the exact status is
//! `prov_errno` of its error entry; for a failed call there is only the number. The module makes no
//! decision about an error, writes no log and keeps no state: all texts are static.
//!
//! `rdm` maps the statuses of completions, and `shell::endpoint` the errors of the opening;
//! `fi_cq_strerror`, `fi_eq_strerror` and the warnings of `rdm` use the texts. All are pure
//! functions, callable in any thread.

use std::ffi::{CStr, c_char};

use causeway_endpoint::Error;
use causeway_message::library;
use causeway_message::status::Status;

use crate::abi::*;

/// The reason why an operation was not started: an error number of libfabric, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Returns the number of an error of a NIC or an endpoint.
pub fn of(error: Error) -> i32 {
    match error {
        Error::NoNic | Error::UnknownNic | Error::NoLibrary | Error::NoAdapter => FI_ENODEV,
        Error::NoDaemon | Error::NoSession => FI_ECONNREFUSED,
        Error::NoPermission => FI_EACCES,
        Error::Version => FI_ENOSYS,
        Error::DaemonGone => FI_ENETDOWN,
        Error::NoResources => FI_ENOMEM,
        Error::EndpointNumber | Error::HostName => FI_EINVAL,
        Error::Taken => FI_EADDRINUSE,
        Error::HostUnknown | Error::NicUnknown => FI_EHOSTUNREACH,
        Error::Engine(error) => of_engine(error),
    }
}

/// Returns the number of an error of the engine. After `FI_EAGAIN` nothing was started; the call
/// succeeds when other operations have completed.
pub fn of_engine(error: library::Error) -> i32 {
    match error {
        library::Error::NoResources => FI_EAGAIN,
        library::Error::BadRequest => FI_ENOENT,
        library::Error::BadSegmentList => FI_EMSGSIZE,
        library::Error::BadMatchMask
        | library::Error::BadParameterValue
        | library::Error::BadMatchingForContextIdMask => FI_EINVAL,
    }
}

/// Returns the number of an operation's final status; 0 if nothing failed.
pub fn of_status(status: Status) -> i32 {
    match status {
        Status::Success | Status::Buffered => FI_SUCCESS,
        Status::Pending => FI_EINPROGRESS,
        Status::Rejected => FI_ECONNREFUSED,
        Status::Timeout => FI_ETIMEDOUT,
        Status::Truncated => FI_ETRUNC,
        Status::Cancelled => FI_ECANCELED,
        Status::EndpointUnknown => FI_EADDRNOTAVAIL,
        Status::EndpointClosed => FI_ESHUTDOWN,
        Status::EndpointUnreachable => FI_EHOSTUNREACH,
        Status::BadSession => FI_ECONNRESET,
        Status::BadKey => FI_EKEYREJECTED,
        Status::BadEndpoint => FI_EINVAL,
        Status::BadRdmaWindow => FI_ENOKEY,
        Status::Aborted => FI_ECONNABORTED,
        Status::EventQueueFull => FI_EOVERRUN,
        Status::NoResources => FI_ENOBUFS,
    }
}

/// Returns the text of a provider's error number (`prov_errno`, a [`Status`]).
pub fn describe(number: i32) -> &'static CStr {
    let status = u32::try_from(number).ok().and_then(Status::of);
    match status {
        Some(Status::Success | Status::Buffered) => c"no error",
        Some(Status::Pending) => c"in progress",
        Some(Status::Rejected) => c"the peer refused",
        Some(Status::Timeout) => c"timed out",
        Some(Status::Truncated) => c"the message is longer than the receive buffer",
        Some(Status::Cancelled) => c"cancelled",
        Some(Status::EndpointUnknown) => c"no such endpoint",
        Some(Status::EndpointClosed) => c"the peer's endpoint is closed",
        Some(Status::EndpointUnreachable) => c"the peer is unreachable or has restarted",
        Some(Status::BadSession) => c"another endpoint has the address by now",
        Some(Status::BadKey) => c"the peer is not an endpoint of this provider",
        Some(Status::BadEndpoint) => c"the address is invalid",
        Some(Status::BadRdmaWindow) => c"no such registered memory",
        Some(Status::Aborted) => c"aborted",
        Some(Status::EventQueueFull) => c"the queue is full",
        Some(Status::NoResources) => c"a limit is reached",
        None => c"unknown error of the provider",
    }
}

/// Returns the text, and copies it to `buf` of `len` bytes, cut if necessary, unless `buf` is NULL.
///
/// # Safety
/// `buf` is NULL or has room for `len` bytes.
pub unsafe fn describe_into(number: i32, buf: *mut c_char, len: usize) -> *const c_char {
    let text = describe(number);
    let Some(room) = len.checked_sub(1).filter(|_| !buf.is_null()) else {
        return text.as_ptr();
    };
    let count = text.to_bytes().len().min(room);
    // SAFETY: the caller passes `len` bytes; the text is a separate object and not shorter than the
    // copy.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buf, count);
        buf.wrapping_add(count).write(0);
    }
    buf
}

#[cfg(test)]
mod tests {
    use causeway_endpoint::Error;
    use causeway_message::library;
    use causeway_message::status::Status;

    use super::{describe, describe_into, of, of_status};
    use crate::abi::*;

    #[test]
    fn errno_of_nics_and_endpoints() {
        for (error, expected) in [
            (Error::NoNic, FI_ENODEV),
            (Error::UnknownNic, FI_ENODEV),
            (Error::NoDaemon, FI_ECONNREFUSED),
            (Error::NoPermission, FI_EACCES),
            (Error::Version, FI_ENOSYS),
            (Error::DaemonGone, FI_ENETDOWN),
            (Error::NoResources, FI_ENOMEM),
            (Error::EndpointNumber, FI_EINVAL),
            (Error::Taken, FI_EADDRINUSE),
            (Error::HostUnknown, FI_EHOSTUNREACH),
            (Error::HostName, FI_EINVAL),
            (Error::NicUnknown, FI_EHOSTUNREACH),
            (Error::Engine(library::Error::NoResources), FI_EAGAIN),
            (Error::Engine(library::Error::BadRequest), FI_ENOENT),
            (Error::Engine(library::Error::BadSegmentList), FI_EMSGSIZE),
            (Error::Engine(library::Error::BadMatchMask), FI_EINVAL),
        ] {
            assert_eq!(of(error), expected, "{error:?}");
        }
    }

    /// Two failures share a number only if an application need not distinguish them.
    #[test]
    fn errno_of_each_status_has_a_number_and_a_text() {
        let all: Vec<Status> = (0..17).filter_map(Status::of).collect();
        assert_eq!(all.len(), 17);
        let mut seen = std::collections::BTreeMap::new();
        for &status in &all {
            let (number, text) = (of_status(status), describe(status as i32));
            assert_eq!(number == 0, matches!(status, Status::Success | Status::Buffered));
            let before = seen.insert(number, text);
            assert!(before.is_none() || number == 0, "{status:?} and {before:?} are both {number}");
        }
        assert_eq!(of_status(Status::Truncated), FI_ETRUNC);
        assert_eq!(of_status(Status::Cancelled), FI_ECANCELED);
        assert_eq!(describe(-1), describe(17));
        assert_ne!(describe(5), describe(6));
    }

    #[test]
    fn errno_texts_are_cut_at_the_end_of_the_buffer() {
        let mut room = [0x7f; 6];
        let at = room.as_mut_ptr();
        let cancelled = Status::Cancelled as i32;
        // SAFETY: `room` has these bytes.
        unsafe {
            assert_eq!(describe_into(cancelled, at, 5).cast_mut(), at);
            assert_eq!(std::ffi::CStr::from_ptr(at), c"canc");
            assert_eq!(describe_into(cancelled, at, 0), describe(cancelled).as_ptr());
            let nowhere = std::ptr::null_mut();
            assert_eq!(describe_into(cancelled, nowhere, 5), describe(cancelled).as_ptr());
        }
        assert_eq!(room[5], 0x7f);
    }
}
