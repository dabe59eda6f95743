//! The PCI function of a port, as the attachment presents it to the VMM.
//!
//! The service calls [`attach`], in the dispatcher's thread, when a VMM has connected to the
//! port's socket; the attachment ([`causeway_attach::vfio_user`]) then serves registers in its
//! control thread, and the dispatcher gets its events. BAR 0 starts with trapped registers; behind
//! them lie the doorbell pages, which the guest maps and writes without a VM exit. The daemon reads
//! no doorbell page: the doorbell records in guest memory have the same information. With `doorbell
//! = "trap"` no page is mapped, and a write to one is a doorbell of the attachment
//! ([`causeway_mlx5::registers::DOORBELL_WORK`]). BAR 2 has the MSI-X table of [`VECTORS`] (8)
//! vectors.
//!
//! Each frontend of a port with `doorbell = "poll"` gets a file of 32 MiB with doorbell pages of
//! its own, so that a guest reads nothing that an earlier guest wrote; if the host has no memory
//! file for them, the frontend is refused. Only the holder, at the inner socket of a held port and
//! with this process's user or root, may resume a device. The module interprets no register
//! ([`causeway_mlx5::registers`] does) and no message of vfio-user.

use std::io;
use std::sync::Arc;

use causeway_attach::vfio_user::device::{
    CONFIG_REGION, DEVICE_PCI, DEVICE_RESET, INTERRUPT_MSIX, MappableFile, REGION_READ,
    REGION_WRITE, RegionDescription, Registers,
};
use causeway_attach::vfio_user::{DeviceDescription, VfioUserAttachment};
use causeway_attach::{Attachment, Connection};
use causeway_host::fd::receive::UntrustedSocket;
use causeway_mlx5::config_space::CONFIG_BYTES;
use causeway_mlx5::limits::{MSIX_REGION_BYTES, TRAPPED_BYTES};
use causeway_mlx5::registers::{REGION_BAR, REGION_MSIX};
use causeway_model::PortSpec;
use causeway_model::port::{HELD_EXTENSION, HcaDoorbell};

use crate::limits::{UAR_BYTES, VECTORS};

/// The registers of a function, as the control thread of the attachment reaches them.
struct FunctionRegisters(Arc<causeway_mlx5::Registers>);

impl Registers for FunctionRegisters {
    fn read(&self, region: u32, offset: u64, bytes: &mut [u8]) {
        self.0.read(region, offset, bytes);
    }

    fn write(&self, region: u32, offset: u64, bytes: &[u8]) -> Option<usize> {
        self.0.write(region, offset, bytes)
    }

    fn begin_resume(&self) {
        self.0.begin_resume();
    }

    fn reset(&self) {
        self.0.reset();
    }
}

/// Returns a region of registers.
fn registers(index: u32, size: u64) -> RegionDescription {
    RegionDescription { index, size, flags: REGION_READ | REGION_WRITE, mmap: None }
}

/// Returns the description of a function with new doorbell pages, which the guest maps unless they
/// are trapped. `is_held`: the peer is the holder.
fn description(is_held: bool, doorbell: HcaDoorbell) -> io::Result<DeviceDescription> {
    let mmap = match doorbell {
        HcaDoorbell::Poll => {
            let file = Arc::new(causeway_memory::create("causeway-doorbells", UAR_BYTES)?);
            Some(MappableFile { file, areas: std::iter::once(TRAPPED_BYTES..UAR_BYTES).collect() })
        }
        HcaDoorbell::Trap => None,
    };
    let bar = RegionDescription { mmap, ..registers(REGION_BAR, UAR_BYTES) };
    let config = registers(CONFIG_REGION, CONFIG_BYTES as u64);
    Ok(DeviceDescription {
        regions: vec![bar, registers(REGION_MSIX, MSIX_REGION_BYTES), config],
        interrupts: vec![(INTERRUPT_MSIX, u32::from(VECTORS))],
        flags: DEVICE_RESET | DEVICE_PCI,
        may_resume: is_held,
    })
}

/// Returns the attachment of a frontend that connected by `stream` to the port of `spec`.
///
/// # Errors
/// The host has no memory file for the doorbell pages.
pub(crate) fn attach(
    spec: &PortSpec,
    stream: UntrustedSocket,
    registers: &Arc<causeway_mlx5::Registers>,
    doorbell: HcaDoorbell,
) -> io::Result<Connection> {
    let registers = Arc::new(FunctionRegisters(Arc::clone(registers)));
    let is_inner = spec.socket.extension().is_some_and(|extension| extension == HELD_EXTENSION);
    // The holder has the user of this process. Another user's process that reaches the socket must
    // not fake a resumption.
    let is_held = is_inner && stream.is_of_same_user();
    let (name, description) = (spec.name.as_str(), description(is_held, doorbell)?);
    let attachment = VfioUserAttachment::new(name, stream, description, registers);
    let attachment: Box<dyn Attachment> = Box::new(attachment);
    Ok(attachment.into())
}
