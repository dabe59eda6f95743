//! vfio-user: a PCI device of this process, which a VMM presents to its guest.
//!
//! The VMM (QEMU's `vfio-user-pci`) connects to a Unix socket. Its messages read and write the
//! device's regions, grant guest memory by DMA mappings, and pass an eventfd for each interrupt
//! vector. A control thread for each frontend answers them, because QEMU declares a device dead
//! after 5 s of silence and the dispatcher must not wait for a socket. The dispatcher owns the
//! [`VfioUserAttachment`] and receives events: new epochs of memory, doorbells, resets.
//!
//! | module | content |
//! |---|---|
//! | [`device`] | the description of a device, and its [`Registers`] |
//! | [`message`] | the formats of messages |
//! | [`stream`] | whole messages over a socket, with descriptors |
//! | [`server`] | the rules of the protocol: a message in, a reply and effects out |
//! | [`dma`] | the DMA mappings, as a table of grants |
//! | [`interrupts`] | the eventfds of interrupt vectors |
//! | [`fault`] | the reasons why a conversation ends |
//! | [`attachment`] | the attachment of the dispatcher, and the control thread |
//!
//! The server opens no request of its own: DMA goes through mapped memory only. Migration, dirty
//! logs, `REGION_WRITE_MULTI` and the I/O descriptors of regions are refused with `EOPNOTSUPP`.
//! Guest memory must be in memory files (memfd, tmpfs, hugetlbfs); a mapping of another file is
//! refused with `EINVAL`, and QEMU's mappings without a file grant nothing. The table has at most
//! 262,144 mappings in 64 files ([`dma`]), an interrupt type at most 64 vectors ([`interrupts`]).
//! Commands that break a rule get an errno; broken framing ends the conversation ([`fault`]). A
//! port has one frontend: `fabric` closes the connection of a second one, and accepts the next
//! after the end of the first. A flood of messages has 1 s of processor time at once and then half
//! a processor: the control thread pauses for up to 100 ms after a message ([`crate::allowance`]).
//!
//! `causeway-hca` uses the module for its ports. The relays of `causeway-holder`, which stand
//! between the VMM and this server for a held port, use its messages, streams and reasons. The
//! frontend's end for tests and for drivers without a VM is [`crate::native::VfioUserClient`]. Work
//! requests do not pass here, because `causeway-hca` polls them in guest memory. The interrupts of
//! their completions do ([`crate::Attachment::notify`]), and so do the doorbells of a port with
//! `doorbell = "trap"`, each of which is a register write.
//!
//! # Restart
//!
//! The state of a conversation is the version exchange, the DMA mappings with their files, the
//! eventfds of vectors, and the driver's register writes. The holder (`causeway-holder`) records
//! all four and keeps the frontend connected while no daemon runs. It sends the next daemon the
//! version exchange, and then the other three between two RESUME commands; the service then
//! receives [`Event::Resumed`](crate::Event::Resumed). Pages that the frontend has mapped stay
//! those of the daemon that served it first: stores to them reach no later daemon.

pub mod attachment;
mod control;
pub mod device;
pub mod dma;

pub mod fault;
pub mod interrupts;
mod link;
pub mod message;
pub mod server;
pub mod stream;

pub use attachment::{DeviceHandle, VfioUserAttachment};
pub use device::{DeviceDescription, MappableFile, RegionDescription, Registers};
pub use interrupts::Vectors;
