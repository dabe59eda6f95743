//! How requests end.

/// How a request ended: `mx_status_code_t`, with MX's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Status {
    /// All of it.
    Success = 0,
    /// Not yet.
    Pending = 1,
    /// Copied, but not yet there.
    Buffered = 2,
    /// The peer refused.
    Rejected = 3,
    /// It took too long.
    Timeout = 4,
    /// The receiver's buffers were shorter than the message.
    Truncated = 5,
    /// Taken back.
    Cancelled = 6,
    /// There is no such endpoint.
    EndpointUnknown = 7,
    /// The peer's endpoint is closed.
    EndpointClosed = 8,
    /// The peer is not reached, or began anew.
    EndpointUnreachable = 9,
    /// The peer's endpoint is another one than the one connected to.
    BadSession = 10,
    /// The key is not the one that the peer's endpoint was opened with.
    BadKey = 11,
    /// The endpoint number is not one.
    BadEndpoint = 12,
    /// The memory named is not registered.
    BadRdmaWindow = 13,
    /// Given up.
    Aborted = 14,
    /// The event queue is full.
    EventQueueFull = 15,
    /// A limit is reached.
    NoResources = 16,
}

impl Status {
    /// The one of this number.
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
    fn numbers_are_those_of_mx() {
        for number in 0..17 {
            assert_eq!(Status::of(number).map(|status| status as u32), Some(number));
        }
        assert_eq!(Status::of(17), None);
    }
}
