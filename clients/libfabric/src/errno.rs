//! What failed, in libfabric's numbers.

use std::ffi::{CStr, c_char};

use causeway_endpoint::Error;
use causeway_message::library;
use causeway_message::status::Status;

use crate::abi::*;

/// Of a board or an endpoint.
pub fn of(error: Error) -> i32 {
    match error {
        Error::NoBoard | Error::UnknownBoard => FI_ENODEV,
        Error::NoDaemon => FI_ECONNREFUSED,
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

/// Of the engine. What has no room now has it when operations completed.
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

/// Of an operation that ended; 0 if nothing failed.
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

/// What a provider's error number (`prov_errno`, a [`Status`]) means.
pub fn describe(number: i32) -> &'static CStr {
    let status = u32::try_from(number).ok().and_then(Status::of);
    match status {
        Some(Status::Success | Status::Buffered) => c"no error",
        Some(Status::Pending) => c"still going on",
        Some(Status::Rejected) => c"the partner refused",
        Some(Status::Timeout) => c"it took too long",
        Some(Status::Truncated) => c"the message was longer than the buffers of its receiver",
        Some(Status::Cancelled) => c"taken back",
        Some(Status::EndpointUnknown) => c"there is no such endpoint",
        Some(Status::EndpointClosed) => c"the partner's endpoint is closed",
        Some(Status::EndpointUnreachable) => c"the partner is not reached, or began anew",
        Some(Status::BadSession) => c"the partner's endpoint is another than the one addressed",
        Some(Status::BadKey) => c"the partner's endpoint is not one of libfabric's",
        Some(Status::BadEndpoint) => c"the address is none",
        Some(Status::BadRdmaWindow) => c"there is no such registered memory",
        Some(Status::Aborted) => c"given up",
        Some(Status::EventQueueFull) => c"the queue is full",
        Some(Status::NoResources) => c"a limit is reached",
        None => c"an error that this provider does not have",
    }
}

/// The same, also copied to where the caller has so much room; cut off where it is too long.
///
/// # Safety
/// The caller has that room there, or gives NULL.
pub unsafe fn describe_into(number: i32, buf: *mut c_char, len: usize) -> *const c_char {
    let text = describe(number);
    let Some(room) = len.checked_sub(1).filter(|_| !buf.is_null()) else {
        return text.as_ptr();
    };
    let count = text.to_bytes().len().min(room);
    // SAFETY: the caller has `len` bytes there, and the text is private and as long.
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
    fn failures_of_boards_and_endpoints_have_their_numbers() {
        for (error, expected) in [
            (Error::NoBoard, FI_ENODEV),
            (Error::UnknownBoard, FI_ENODEV),
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

    /// Two statuses of failure have one number only if they are no different to an application.
    #[test]
    fn every_status_has_its_number_and_its_text() {
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
    fn texts_are_cut_off_where_there_is_no_room() {
        let mut room = [0x7f; 6];
        let at = room.as_mut_ptr();
        let cancelled = Status::Cancelled as i32;
        // SAFETY: so many bytes are there.
        unsafe {
            assert_eq!(describe_into(cancelled, at, 5).cast_mut(), at);
            assert_eq!(std::ffi::CStr::from_ptr(at), c"take");
            assert_eq!(describe_into(cancelled, at, 0), describe(cancelled).as_ptr());
            let nowhere = std::ptr::null_mut();
            assert_eq!(describe_into(cancelled, nowhere, 5), describe(cancelled).as_ptr());
        }
        assert_eq!(room[5], 0x7f);
    }
}
