//! Software offloads: checksums and segmentation that a sender requested and its receiver did not
//! negotiate.
//!
//! Frames pass uncut where both sides negotiated the offload ([`mod@plan`]). Otherwise checksums
//! are completed and frames cut into segments ([`segment`]). `deliver` and `link_tx` call the module
//! for each receiver separately, and `forward` the decision alone, in the thread of the group's
//! dispatcher.
//!
//! The module works on private bytes and header values; it reads no guest memory and allocates
//! nothing. It merges no segments (no GRO), verifies no complete checksum, and cuts TCP and UDP
//! only, over IPv4 and IPv6. Offload requests were validated before (`headers`).

pub mod plan;

pub use causeway_wire::virtio_net::segment;
pub use plan::{OffloadPlan, plan};
