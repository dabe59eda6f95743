//! Status codes of requests, with the numbers of MX. They cross the rings of an endpoint and the
//! socket between process and daemon; their texts belong to the client libraries.
//!
//! A number above 16 is no status: [`Status::of`] returns `None`, and the caller treats the peer's
//! message as invalid. [`Status::Pending`] and [`Status::Buffered`] never end a request. `mxoe`
//! (NIC side), `message` (host side) and the service `mx` (refused connects) produce statuses;
//! failures of a call itself are `mx_return_t`, in `message`. The threads are those of the two
//! sides ([`super`]).

/// Outcome of a request: `mx_status_code_t`, with the numbers of MX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Status {
    /// The request succeeded.
    Success = 0,
    /// The request has not ended.
    Pending = 1,
    /// The data was copied and is not delivered yet.
    Buffered = 2,
    /// The peer answered a connect with an error other than a wrong key.
    Rejected = 3,
    /// The time limit of the request passed.
    Timeout = 4,
    /// The receiver's buffers were shorter than the message.
    Truncated = 5,
    /// The request was cancelled.
    Cancelled = 6,
    /// The endpoint does not exist.
    EndpointUnknown = 7,
    /// The peer's endpoint is closed.
    EndpointClosed = 8,
    /// The peer is unreachable, or opened its endpoint again.
    EndpointUnreachable = 9,
    /// The peer's endpoint has another session than the connection.
    BadSession = 10,
    /// The key differs from the key of the peer's endpoint.
    BadKey = 11,
    /// The endpoint number is invalid.
    BadEndpoint = 12,
    /// The memory is not registered.
    BadRdmaWindow = 13,
    /// The request was aborted.
    Aborted = 14,
    /// The event queue is full.
    EventQueueFull = 15,
    /// A limit was reached.
    NoResources = 16,
}

impl Status {
    /// Returns the status with this number, or `None` if there is none.
    #[inline]
    pub fn of(number: u32) -> Option<Self> {
        const ALL: [Status; 17] = [
            Status::Success,
            Status::Pending,
            Status::Buffered,
            Status::Rejected,
            Status::Timeout,
            Status::Truncated,
            Status::Cancelled,
            Status::EndpointUnknown,
            Status::EndpointClosed,
            Status::EndpointUnreachable,
            Status::BadSession,
            Status::BadKey,
            Status::BadEndpoint,
            Status::BadRdmaWindow,
            Status::Aborted,
            Status::EventQueueFull,
            Status::NoResources,
        ];
        ALL.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn mx_status_numbers_are_those_of_mx() {
        for number in 0..17 {
            assert_eq!(Status::of(number).map(|status| status as u32), Some(number));
        }
        assert_eq!(Status::of(17), None);
    }
}
