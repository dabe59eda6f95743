//! Return codes and status codes of the API, with their texts.
//!
//! Numbers are those of `mx_return_t` and `mx_status_code_t`, so that programs compiled against MX
//! or Open-MX understand them. Texts are static and English; some name a remedy. An unknown code
//! has a text of its own. Codes that this library never returns are present for their texts. Errors
//! of the matching engine and of [`causeway_endpoint`] are converted here; `errors` reports them to
//! handlers, and the functions of `call` return them to the application.

use std::ffi::CStr;

use causeway_message::library::Error;
use causeway_message::status::Status;

/// `mx_return_t` in the ABI.
pub type Code = u32;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// Reason of a failed call, with the numbers of MX.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        #[allow(dead_code, reason = "some codes belong to operations that MX never had")]
        pub enum Return {
            $(#[doc = $text] $name = $value,)*
        }

        /// Returns the text of a return code.
        pub fn describe(code: Code) -> &'static CStr {
            let text: &'static [u8] = match code {
                0 => b"no error\0",
                $($value => concat!($text, "\0").as_bytes(),)*
                _ => b"unknown return code\0",
            };
            CStr::from_bytes_with_nul(text).unwrap_or(c"")
        }
    };
}

#[rustfmt::skip]
codes! {
    BadBadBad = 1, "this cannot happen";
    Failure = 2, "failure";
    AlreadyInitialized = 3, "mx_init was called already";
    NotInitialized = 4, "mx_init was not called";
    NoDev = 5, "this host has no board: add a port of kind mx, or set CAUSEWAY_MX to its socket; in a guest, install libibverbs and set the interface of the adapter up";
    NoDriver = 6, "the daemon of the board does not answer: start causewayd; in a guest, add a port of kind mx with the option adapter to the host";
    NoPerm = 7, "permission denied";
    BoardUnknown = 8, "no such board";
    BadEndpoint = 9, "not an open endpoint, or not an address of it";
    BadSegList = 10, "the list of segments is missing, or its total length is too great";
    BadSegMem = 11, "a segment is not memory of this process";
    BadSegCnt = 12, "too many segments";
    BadRequest = 13, "not a request of this endpoint, or not valid for this call";
    BadMatchMask = 14, "the match information has bits that the mask does not cover";
    NoResources = 15, "a limit is reached";
    BadAddrList = 16, "the list of addresses is missing";
    BadAddrCount = 17, "an empty list of addresses";
    BadRoot = 18, "a root outside of the list of addresses";
    NotCompleted = 19, "operations are not completed yet";
    Busy = 20, "the endpoint is in use";
    BadInfoKey = 21, "no such information";
    BadInfoVal = 22, "the value or buffer of the query is invalid";
    BadNic = 23, "not the address of a board";
    BadParamList = 24, "the list of parameters is missing";
    BadParamName = 25, "no such parameter";
    BadParamVal = 26, "a parameter has a bad value";
    BadHostnameArgs = 27, "bad arguments with a host name";
    HostNotFound = 28, "no board has this name";
    RequestPending = 29, "the request is pending";
    Timeout = 30, "timeout";
    NoMatch = 31, "no message matches";
    BadEndpointId = 32, "the endpoint's number is out of range";
    ConnectionFailed = 33, "the connection failed: is the endpoint of the peer open?";
    BadConnectionKey = 34, "the connection was refused: the key is wrong";
    BadInfoLength = 35, "the information does not fit";
    NicNotFound = 36, "no board has this address";
    BadKernelVersion = 37, "the daemon has another protocol version";
    BadLibVersion = 38, "the program was built for another API version";
    NicDead = 39, "the daemon of the board has ended";
    CancelNotSupported = 40, "a request of this kind cannot be cancelled";
    CloseInHandler = 41, "an endpoint cannot be closed in its own handler";
    BadMatchingForContextIdMask = 42, "the mask does not cover the context id";
    NotSupportedWithContextId = 43, "not supported with context ids";
}

impl From<Error> for Return {
    fn from(error: Error) -> Self {
        match error {
            Error::BadSegmentList => Self::BadSegList,
            Error::BadRequest => Self::BadRequest,
            Error::BadMatchMask => Self::BadMatchMask,
            Error::NoResources => Self::NoResources,
            Error::BadParameterValue => Self::BadParamVal,
            Error::BadMatchingForContextIdMask => Self::BadMatchingForContextIdMask,
        }
    }
}

impl From<causeway_endpoint::Error> for Return {
    fn from(error: causeway_endpoint::Error) -> Self {
        use causeway_endpoint::Error;
        match error {
            Error::NoNic | Error::NoLibrary | Error::NoAdapter => Self::NoDev,
            Error::UnknownNic => Self::BoardUnknown,
            Error::NoDaemon | Error::NoSession => Self::NoDriver,
            Error::NoPermission => Self::NoPerm,
            Error::Version => Self::BadKernelVersion,
            Error::DaemonGone => Self::NicDead,
            Error::NoResources => Self::NoResources,
            Error::EndpointNumber => Self::BadEndpointId,
            Error::Taken => Self::Busy,
            Error::HostUnknown => Self::HostNotFound,
            Error::HostName => Self::BadHostnameArgs,
            Error::NicUnknown => Self::NicNotFound,
            Error::Engine(error) => error.into(),
        }
    }
}

/// Converts the status of a connect to a result.
pub fn of_connect(status: Status) -> Result<(), Return> {
    Err(match status {
        Status::Success => return Ok(()),
        Status::Timeout => Return::Timeout,
        Status::BadKey => Return::BadConnectionKey,
        Status::BadEndpoint => Return::BadEndpointId,
        Status::EndpointUnknown => Return::NicNotFound,
        Status::NoResources => Return::NoResources,
        _ => Return::ConnectionFailed,
    })
}

/// Returns the text of a status code.
pub fn describe_status(status: u32) -> &'static CStr {
    match status {
        0 => c"success",
        1 => c"pending",
        2 => c"buffered, but pending",
        3 => c"rejected",
        4 => c"timeout",
        5 => c"truncated: the receiver's buffer was shorter",
        6 => c"cancelled",
        7 => c"no such endpoint",
        8 => c"the endpoint of the peer is closed",
        9 => c"the peer cannot be reached",
        10 => c"the endpoint of the peer has a new session",
        11 => c"the key is wrong",
        12 => c"not an endpoint",
        13 => c"the memory is not registered",
        14 => c"aborted by the peer",
        15 => c"too many events",
        16 => c"a limit is reached",
        _ => c"unknown status",
    }
}
