//! Numbers of vhost-user: the requests of a frontend, the protocol features, and the flags of a
//! header.
//!
//! The names and values are those of QEMU's `docs/interop/vhost-user.rst`. [`super::message`] reads
//! requests into these types, [`super::server`] and [`crate::native`] negotiate by them, and
//! `causeway-holder` recognises the requests that it relays. A number that the specification does
//! not name is no [`FrontendReq`]; the module does not decide which requests are served. A test
//! compares all values with the `vhost` crate. The types are plain values for any thread.

use bitflags::bitflags;

/// Defines the requests with their numbers, and both conversions.
macro_rules! requests {
    ($($name:ident = $code:literal,)*) => {
        /// A request of the frontend, by the specification's name without `VHOST_USER_`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(non_camel_case_types, missing_docs, reason = "the names are the specification's")]
        #[repr(u32)]
        pub enum FrontendReq {
            $($name = $code,)*
        }

        impl TryFrom<u32> for FrontendReq {
            type Error = ();

            fn try_from(code: u32) -> Result<Self, ()> {
                match code {
                    $($code => Ok(Self::$name),)*
                    _ => Err(()),
                }
            }
        }
    };
}

requests! {
    GET_FEATURES = 1,
    SET_FEATURES = 2,
    SET_OWNER = 3,
    RESET_OWNER = 4,
    SET_MEM_TABLE = 5,
    SET_LOG_BASE = 6,
    SET_LOG_FD = 7,
    SET_VRING_NUM = 8,
    SET_VRING_ADDR = 9,
    SET_VRING_BASE = 10,
    GET_VRING_BASE = 11,
    SET_VRING_KICK = 12,
    SET_VRING_CALL = 13,
    SET_VRING_ERR = 14,
    GET_PROTOCOL_FEATURES = 15,
    SET_PROTOCOL_FEATURES = 16,
    GET_QUEUE_NUM = 17,
    SET_VRING_ENABLE = 18,
    SEND_RARP = 19,
    NET_SET_MTU = 20,
    SET_BACKEND_REQ_FD = 21,
    IOTLB_MSG = 22,
    SET_VRING_ENDIAN = 23,
    GET_CONFIG = 24,
    SET_CONFIG = 25,
    CREATE_CRYPTO_SESSION = 26,
    CLOSE_CRYPTO_SESSION = 27,
    POSTCOPY_ADVISE = 28,
    POSTCOPY_LISTEN = 29,
    POSTCOPY_END = 30,
    GET_INFLIGHT_FD = 31,
    SET_INFLIGHT_FD = 32,
    GPU_SET_SOCKET = 33,
    RESET_DEVICE = 34,
    VRING_KICK = 35,
    GET_MAX_MEM_SLOTS = 36,
    ADD_MEM_REG = 37,
    REM_MEM_REG = 38,
    SET_STATUS = 39,
    GET_STATUS = 40,
    GET_SHARED_OBJECT = 41,
    SET_DEVICE_STATE_FD = 42,
    CHECK_DEVICE_STATE = 43,
    GET_SHMEM_CONFIG = 44,
}

impl From<FrontendReq> for u32 {
    fn from(request: FrontendReq) -> Self {
        request as Self
    }
}

bitflags! {
    /// Features of the protocol, which frontend and backend negotiate; unlike the features of the
    /// device they do not concern the guest.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct VhostUserProtocolFeatures: u64 {
        /// The frontend may ask for the number of queues.
        const MQ = 1 << 0;
        /// The dirty log lies in a file that the frontend sends.
        const LOG_SHMFD = 1 << 1;
        /// The frontend may ask for an acknowledgement of each request.
        const REPLY_ACK = 1 << 3;
        /// The frontend gives the backend a channel for requests of its own.
        const BACKEND_REQ = 1 << 5;
        /// The frontend reads and writes the configuration space by messages.
        const CONFIG = 1 << 9;
        /// The record of chains in flight lies in a file that both sides map.
        const INFLIGHT_SHMFD = 1 << 12;
        /// The frontend may reset the device by a message.
        const RESET_DEVICE = 1 << 13;
        /// The frontend may add and remove single memory regions.
        const CONFIGURE_MEM_SLOTS = 1 << 15;
        /// The frontend reports and reads the virtio status byte.
        const STATUS = 1 << 16;
    }
}

/// Bits of the flags of a header.
pub(crate) mod header_flags {
    /// The protocol's version; always 1.
    pub const VERSION: u32 = 3;
    /// The message is a reply.
    pub const REPLY: u32 = 1 << 2;
    /// The sender asks for an acknowledgement.
    pub const NEED_REPLY: u32 = 1 << 3;
    /// Bits without a meaning, which must be clear.
    pub const RESERVED: u32 = !(VERSION | REPLY | NEED_REPLY);
}

#[cfg(test)]
mod tests {
    use vhost::vhost_user::message as oracle;

    use super::*;

    #[test]
    fn vhost_user_requests_have_the_numbers_and_names_of_the_vhost_crate() {
        for code in 0..200 {
            let (ours, theirs) = (FrontendReq::try_from(code), oracle::FrontendReq::try_from(code));
            assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
            assert_eq!(ours.map_or(code, u32::from), code);
        }
    }

    #[test]
    fn vhost_user_flags_have_the_bits_of_the_vhost_crate() {
        for (name, flag) in VhostUserProtocolFeatures::all().iter_names() {
            let theirs = oracle::VhostUserProtocolFeatures::from_name(name).map(|flag| flag.bits());
            assert_eq!(theirs, Some(flag.bits()), "{name}");
        }
        use oracle::VhostUserHeaderFlag as Theirs;
        let theirs = [Theirs::VERSION, Theirs::REPLY, Theirs::NEED_REPLY, Theirs::RESERVED_BITS];
        use header_flags::{NEED_REPLY, REPLY, RESERVED, VERSION};
        assert_eq!([VERSION, REPLY, NEED_REPLY, RESERVED], theirs.map(|flag| flag.bits()));
        let features = oracle::VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        assert_eq!(crate::vhost_user::server::features::PROTOCOL_FEATURES, features);
    }
}
