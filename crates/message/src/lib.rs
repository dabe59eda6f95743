//! Host side of MX endpoints: requests, matching and paths to peers (Xen2MX's library half).
//!
//! The crate turns MX calls (send, receive, probe, connect, test) into events for a transport, and
//! events of a transport into completions. It is sans-I/O: bytes and time come in by calls,
//! requests to peers go out by a [`Transport`](library::Transport). It does not speak MXoE,
//! retransmit, open descriptors, sleep (one wait of up to 2 s yields the processor: [`library`]) or
//! take locks. The NIC side (`causeway-mxoe`, in the daemon or in the process) does the first two;
//! `causeway-endpoint` opens descriptors, the API libraries take the locks, and both sleep.
//!
//! # Place
//! Floor 4, beside `mxoe`; neither imports the other. A message passes: application, an API library
//! (`libmyriexpress`, the libfabric provider), `causeway-endpoint`, [`Library`](library::Library),
//! then either [`Channels`](library::Channels) (shared memory to an endpoint of this host) or
//! [`Rings`](library::Rings) (shared memory to the NIC side, which sends packets to other hosts,
//! and passes messages of endpoints of this host that have no channel).
//!
//! A [`Library`](library::Library) runs in the thread that calls it, which must hold the lock of
//! the endpoint. At a limit a request fails with `NoResources` and starts nothing, or waits; a
//! message without room stays in the transport, and no message is dropped ([`limits`]).
//!
//! # Main types
//! | type | content |
//! |---|---|
//! | [`library::Library`] | matching engine: requests, posted receives, unexpected messages |
//! | [`library::Transport`] | interface to peers: eager messages, offers, pulls, connects |
//! | [`library::Channels`], [`library::Rings`] | the two transports |
//! | [`limits`] | every bound of the crate |
//!
//! # Example
//! ```
//! use causeway_message::library::{Channels, Error, Library, LibraryOptions, Partner};
//! use causeway_message::split::{Address, NicId};
//!
//! let address = Address { nic: NicId(0x02_00_00_00_00_01), endpoint: 1 };
//! let options = LibraryOptions { address, session: 1, key: 7, context_bits: 0, context_shift: 0 };
//! let mut library = Library::<Vec<u8>>::new(options)?;
//! let mut transport = Channels::<fn()>::default();
//! let receive = library.irecv(&mut transport, 5, u64::MAX, 0, vec![0; 8])?;
//! library.isend(&mut transport, Partner::SELF, 5, 0, b"hello".to_vec())?;
//! let completion = library.test(receive)?.expect("a message to the own endpoint arrives at once");
//! assert_eq!(completion.msg_length, 5);
//! # Ok::<(), Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod library;
pub mod limits;

pub use causeway_wire::mx as split;
/// Completion codes of requests: [`split::Status`].
pub mod status {
    pub use causeway_wire::mx::Status;
}
