//! Registers: the initialisation segment at the begin of BAR 0, the doorbell pages behind it, and
//! the port's registers, which ACCESS_REG reads and writes.
//!
//! A driver accesses the initialisation segment in 32-bit big-endian words. Doorbell pages are
//! shared memory, and the device reads none: doorbell records have the same values.
//!
//! The device reads the offsets of the segment and the PCI identifiers in the control thread of a
//! port (`mlx5::registers`, `mlx5::config_space`), and executes ACCESS_REG in the dispatcher's turn
//! (`mlx5::command::register`). Only lengths are checked here. The device answers PTYS, PMTU, PVLC
//! and PAOS with a fixed link (Ethernet, 100 Gbit/s, up) and any other register, [`ECHO`] included,
//! with the bytes of the input; writes change nothing, and register 0 is *bad parameter*. The
//! InfiniBand fields and constants are only described; the device leaves them 0.

use super::field::{at, layout};

/// Vendor identifier (PCI).
pub const PCI_VENDOR: u16 = 0x15b3;
/// Device identifier (PCI): virtual function of the ConnectX family.
pub const PCI_DEVICE: u16 = 0x101e;
/// Class code (PCI): Ethernet controller.
pub const PCI_CLASS: u32 = 0x02_0000;

/// Version of the firmware: minor in the upper 16 bits, major in the lower.
pub const FIRMWARE_VERSION: u64 = 0x000;
/// Version of the command interface in the upper 16 bits, sub-minor version of the firmware in the
/// lower.
pub const COMMAND_INTERFACE: u64 = 0x004;
/// Only version of the command interface that drivers accept.
pub const COMMAND_INTERFACE_VERSION: u16 = 5;
/// Upper half of the command queue's address.
pub const COMMAND_QUEUE_HIGH: u64 = 0x010;
/// Lower half of the command queue's address. The lower 12 bits read as [`command_queue_size`], and
/// select the interface's state when written.
pub const COMMAND_QUEUE_LOW: u64 = 0x014;
/// Doorbell of the command queue: bit n is set for entry n.
pub const COMMAND_DOORBELL: u64 = 0x018;
/// State of the initialisation: bit 31 is set until the device is ready.
pub const INITIALIZING: u64 = 0x1fc;
/// Health buffer: 64 bytes. Zero is good.
pub const HEALTH_BUFFER: u64 = 0x200;
/// Version of the firmware in the health buffer; all ones mean that the device is lost.
pub const HEALTH_FIRMWARE: u64 = 0x230;
/// Syndrome of the health buffer; 0 is good.
pub const HEALTH_SYNDROME: u64 = 0x23c;
/// Upper half of the device's clock.
pub const TIMER_HIGH: u64 = 0x1000;
/// Lower half of the device's clock.
pub const TIMER_LOW: u64 = 0x1004;
/// Health counter, which must change between two reads of the driver, 2 s apart.
pub const HEALTH_COUNTER: u64 = 0x1010;
/// Length of the initialisation segment, in bytes: whole pages.
pub const SEGMENT_LEN: u64 = 0x5000;

/// Length of a doorbell page, in bytes. Page n begins at n times the length in BAR 0.
pub const UAR_LEN: u64 = 4096;
/// Offset of [`super::completion_queue::ArmDoorbell`] in a doorbell page.
pub const UAR_ARM_COMPLETION: u64 = 0x20;
/// Offset of [`super::event_queue::EventDoorbell`] with arming in a doorbell page.
pub const UAR_ARM_EVENT: u64 = 0x40;
/// Offset of [`super::event_queue::EventDoorbell`] without arming in a doorbell page.
pub const UAR_UPDATE_EVENT: u64 = 0x48;
/// Offset of the send doorbell in a doorbell page: the first 8 bytes of the control segment.
pub const UAR_SEND: u64 = 0x800;

/// Returns the lower byte of [`COMMAND_QUEUE_LOW`] for a queue of 2^`log_entries` entries, each of
/// 2^`log_stride` bytes.
pub const fn command_queue_size(log_entries: u8, log_stride: u8) -> u32 {
    ((log_entries as u32 & 15) << 4) | (log_stride as u32 & 15)
}

/// Returns the value of [`FIRMWARE_VERSION`].
pub const fn firmware_version(major: u16, minor: u16) -> u32 {
    ((minor as u32) << 16) | major as u32
}

/// Returns the value of [`COMMAND_INTERFACE`].
pub const fn command_interface(sub_minor: u16) -> u32 {
    ((COMMAND_INTERFACE_VERSION as u32) << 16) | sub_minor as u32
}

/// Offset of the register's data in input and output of ACCESS_REG.
pub const ACCESS_DATA: usize = 0x10;
/// Modifier of ACCESS_REG: write. The other modifier is [`ACCESS_READ`].
pub const ACCESS_WRITE: u16 = 0;
/// Modifier of ACCESS_REG: read.
pub const ACCESS_READ: u16 = 1;

/// Register: capabilities of the port.
pub const PCAP: u16 = 0x5001;
/// Register: mapping of lanes to modules.
pub const PMLP: u16 = 0x5002;
/// Register: MTU of the port.
pub const PMTU: u16 = 0x5003;
/// Register: types and speeds of the link.
pub const PTYS: u16 = 0x5004;
/// Register: state of the port.
pub const PAOS: u16 = 0x5006;
/// Register: flow control.
pub const PFCC: u16 = 0x5007;
/// Register: counters of the port.
pub const PPCNT: u16 = 0x5008;
/// Register: buffers of the port.
pub const PBMC: u16 = 0x500c;
/// Register: virtual lanes.
pub const PVLC: u16 = 0x500f;
/// Register: capabilities of further registers of the port.
pub const PCAM: u16 = 0x507f;
/// Register: capabilities of further registers of the device.
pub const MCAM: u16 = 0x907f;
/// Register: description of this host, which drivers write.
pub const HOST_ENDIANNESS: u16 = 0x7004;
/// Register that answers with its input.
pub const ECHO: u16 = 0x6001;

layout! {
    /// The input of ACCESS_REG, before the data.
    pub struct AccessInput("ACCESS_REG input", 16) {
        /// [`ACCESS_READ`] or [`ACCESS_WRITE`].
        modifier: u16 = at(0x06, 0, 16),
        /// Register.
        register: u16 = at(0x0a, 0, 16),
        /// Parameter of the register.
        argument: u32 = at(0x0c, 0, 32),
    }
}

/// [`PortType::protocol`]: InfiniBand.
pub const PROTOCOL_INFINIBAND: u8 = 1 << 0;
/// [`PortType::protocol`]: Ethernet.
pub const PROTOCOL_ETHERNET: u8 = 1 << 2;
/// Speed of [`PortType`]: Ethernet, 100 Gbit/s, 4 lanes.
pub const ETHERNET_100G: u32 = 1 << 23;
/// Width of an InfiniBand link: 4 lanes.
pub const INFINIBAND_4X: u16 = 2;
/// Speed of an InfiniBand link: EDR.
pub const INFINIBAND_EDR: u16 = 0x20;

layout! {
    /// Register PTYS: types and speeds of the link. Each mask has one bit for each speed.
    pub struct PortType("PTYS register", 0x40) {
        /// Port.
        port: u8 = at(0x01, 0, 8),
        /// Sum of `PROTOCOL_` constants.
        protocol: u8 = at(0x03, 5, 3),
        /// State of auto-negotiation.
        negotiation: u8 = at(0x04, 0, 4),
        /// Possible speeds of later generations.
        extended_capability: u32 = at(0x08, 0, 32),
        /// Possible speeds.
        capability: u32 = at(0x0c, 0, 32),
        /// Possible widths of an InfiniBand link.
        infiniband_width_capability: u16 = at(0x10, 0, 16),
        /// Possible speeds of an InfiniBand link.
        infiniband_capability: u16 = at(0x12, 0, 16),
        /// Permitted speeds of later generations.
        extended_admin: u32 = at(0x14, 0, 32),
        /// Permitted speeds.
        admin: u32 = at(0x18, 0, 32),
        /// Permitted widths of an InfiniBand link.
        infiniband_width_admin: u16 = at(0x1c, 0, 16),
        /// Permitted speeds of an InfiniBand link.
        infiniband_admin: u16 = at(0x1e, 0, 16),
        /// Present speed, of later generations.
        extended_operational: u32 = at(0x20, 0, 32),
        /// Present speed.
        operational: u32 = at(0x24, 0, 32),
        /// Present width of an InfiniBand link.
        infiniband_width_operational: u16 = at(0x28, 0, 16),
        /// Present speed of an InfiniBand link.
        infiniband_operational: u16 = at(0x2a, 0, 16),
        /// Connector.
        connector: u8 = at(0x2f, 4, 4),
    }
}

layout! {
    /// Register PMTU: MTU of the port, in bytes.
    pub struct PortMtu("PMTU register", 16) {
        /// Port.
        port: u8 = at(0x01, 0, 8),
        /// Largest possible.
        max: u16 = at(0x04, 0, 16),
        /// Permitted.
        admin: u16 = at(0x08, 0, 16),
        /// Present.
        operational: u16 = at(0x0c, 0, 16),
    }
}

layout! {
    /// Register PVLC: virtual lanes.
    pub struct PortLanes("PVLC register", 16) {
        /// Port.
        port: u8 = at(0x01, 0, 8),
        /// Possible; 0 makes drivers of InfiniBand links fail.
        capability: u8 = at(0x07, 4, 4),
        /// Permitted.
        admin: u8 = at(0x0b, 4, 4),
        /// Present.
        operational: u8 = at(0x0f, 4, 4),
    }
}

layout! {
    /// Register PAOS: state of the port; 1 up, 2 down.
    pub struct PortState("PAOS register", 16) {
        /// Port.
        port: u8 = at(0x01, 0, 8),
        /// Permitted.
        admin: u8 = at(0x02, 4, 4),
        /// Present.
        operational: u8 = at(0x03, 4, 4),
    }
}
