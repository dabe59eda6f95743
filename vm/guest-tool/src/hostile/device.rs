//! A virtio device driven by hand: the caller controls every register and every ring byte.
//!
//! Three queues have pages of their own (64 descriptors each), and 40 further pages are buffers. A
//! descriptor or byte beyond its page is an error; the number of a further queue panics, or reaches
//! the pages of buffers. No interrupt is taken: the caller polls the used ring. A device that does
//! not reset within 10 s is an error. The drop of a [`Device`] resets the device before its pages
//! are freed, also after an error of a case; a device that does not reset loses its access to
//! memory (bus mastering). [`rings`](super::rings), [`net`](super::net) and
//! [`vsock`](super::vsock) drive it, in the main thread of the process.

use super::pages::Pages;
use super::pci::{Part, Pci};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// `VIRTQ_DESC_F_NEXT` (virtio 1.3, section 2.7.5): the chain continues at the next descriptor.
pub const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes the buffer.
pub const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`: the buffer is a table of descriptors.
pub const INDIRECT: u16 = 4;
/// Descriptors of each queue that the cases use.
pub const SIZE: u16 = 64;
/// Status of a running device: ACKNOWLEDGE, DRIVER, FEATURES_OK, DRIVER_OK.
pub const RUNNING: u8 = 0xf;
/// The feature bits that correct drivers of both kinds negotiate: version 1 and indirect
/// descriptors.
pub const FEATURES: u64 = 1 << 32 | 1 << 28;
/// Pages of each queue: descriptors, available ring, used ring.
const QUEUE_PAGES: usize = 3;
/// Number of queues with pages.
const QUEUES: usize = 3;
/// First page for buffers and tables.
pub const BUFFERS: usize = QUEUE_PAGES * QUEUES;
/// Pages for buffers.
pub const BUFFER_COUNT: usize = 40;
/// Time limit of a reset.
const RESET: Duration = Duration::from_secs(10);

/// Register offsets of the common configuration.
mod register {
    pub const DRIVER_FEATURE_SELECT: u32 = 8;
    pub const DRIVER_FEATURE: u32 = 12;
    pub const STATUS: u32 = 20;
    pub const QUEUE_SELECT: u32 = 22;
    pub const QUEUE_SIZE: u32 = 24;
    pub const QUEUE_ENABLE: u32 = 28;
    pub const QUEUE_NOTIFY_OFF: u32 = 30;
    pub const QUEUE_DESC: u32 = 32;
    pub const QUEUE_DRIVER: u32 = 40;
    pub const QUEUE_DEVICE: u32 = 48;
}

/// Addresses of a queue's parts, as written to the device.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Descriptors of the queue.
    pub size: u16,
    /// Physical address of the descriptor table.
    pub desc: u64,
    /// Physical address of the available ring.
    pub avail: u64,
    /// Physical address of the used ring.
    pub used: u64,
}

/// The device and its memory. The drop resets the device.
#[derive(Debug)]
pub struct Device {
    /// The device's registers.
    pub pci: Pci,
    /// The memory for rings and buffers.
    pub pages: Pages,
    /// Published available index of each queue.
    available: [u16; QUEUES],
    /// Doorbell offset of each queue.
    doorbell_offsets: [u32; QUEUES],
}

impl Device {
    /// Creates a device without a driver.
    ///
    /// # Errors
    /// When no memory with a known physical address is available.
    pub fn new(pci: Pci) -> io::Result<Self> {
        Ok(Self::on(pci, Pages::new(BUFFERS + BUFFER_COUNT)?))
    }

    fn on(pci: Pci, pages: Pages) -> Self {
        Self { pci, pages, available: [0; QUEUES], doorbell_offsets: [0; QUEUES] }
    }

    /// Sets the status register.
    ///
    /// # Errors
    /// The error of the configuration space access.
    pub fn status(&mut self, status: u8) -> io::Result<()> {
        self.pci.write(Part::Common, register::STATUS, &[status])
    }

    /// Enables bus mastering, resets the device and waits for the end of the reset.
    ///
    /// # Errors
    /// When the reset exceeds its time limit.
    pub fn reset(&mut self) -> io::Result<()> {
        self.pci.master(true)?;
        self.status(0)?;
        let start = Instant::now();
        while self.pci.read::<1>(Part::Common, register::STATUS)? != [0] {
            if start.elapsed() > RESET {
                return Err(io::Error::other("the device does not reset"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Writes the driver's feature bits.
    ///
    /// # Errors
    /// The error of the configuration space access.
    pub fn features(&mut self, features: u64) -> io::Result<()> {
        for half in [0_u32, 1] {
            let bits = (features >> (32 * half)) as u32;
            let select = register::DRIVER_FEATURE_SELECT;
            self.pci.write(Part::Common, select, &half.to_le_bytes())?;
            self.pci.write(Part::Common, register::DRIVER_FEATURE, &bits.to_le_bytes())?;
        }
        Ok(())
    }

    /// Returns the correct layout of `queue`.
    #[must_use]
    pub fn layout(&self, queue: u16) -> Layout {
        let page = usize::from(queue) * QUEUE_PAGES;
        let [desc, avail, used] = [0, 1, 2].map(|n| self.pages.address(page + n));
        Layout { size: SIZE, desc, avail, used }
    }

    /// Writes the layout of `queue` and enables the queue.
    ///
    /// # Errors
    /// The error of the configuration space access.
    pub fn enable(&mut self, queue: u16, layout: Layout) -> io::Result<()> {
        self.place(queue, layout)?;
        self.pci.write(Part::Common, register::QUEUE_ENABLE, &1_u16.to_le_bytes())
    }

    /// Writes the layout of `queue`.
    ///
    /// # Errors
    /// The error of the configuration space access.
    pub fn place(&mut self, queue: u16, layout: Layout) -> io::Result<()> {
        self.pci.write(Part::Common, register::QUEUE_SELECT, &queue.to_le_bytes())?;
        self.pci.write(Part::Common, register::QUEUE_SIZE, &layout.size.to_le_bytes())?;
        for (at, address) in [
            (register::QUEUE_DESC, layout.desc),
            (register::QUEUE_DRIVER, layout.avail),
            (register::QUEUE_DEVICE, layout.used),
        ] {
            for half in [0_u32, 1] {
                let bits = (address >> (32 * half)) as u32;
                self.pci.write(Part::Common, at + 4 * half, &bits.to_le_bytes())?;
            }
        }
        let bell = self.pci.read::<2>(Part::Common, register::QUEUE_NOTIFY_OFF)?;
        self.doorbell_offsets[usize::from(queue)] = u32::from(u16::from_le_bytes(bell));
        Ok(())
    }

    /// Zeroes the descriptors and rings of all queues, and the available indices.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn clear(&mut self) -> io::Result<()> {
        self.available = [0; QUEUES];
        (0..BUFFERS).try_for_each(|page| self.pages.write(page, 0, &[0; 4096]))
    }

    /// Resets the device, clears the rings and sets features, without a check of FEATURES_OK; the
    /// queues come next.
    ///
    /// # Errors
    /// When the device does not reset.
    pub fn begin(&mut self, features: u64) -> io::Result<()> {
        self.reset()?;
        self.clear()?;
        self.status(1)?;
        self.status(3)?;
        self.features(features)?;
        self.status(0xb)
    }

    /// Initialises the device correctly: queues 0 and 1 run afterwards.
    ///
    /// # Errors
    /// When the device does not reset.
    pub fn start(&mut self, features: u64) -> io::Result<()> {
        self.begin(features)?;
        for queue in [0, 1] {
            self.enable(queue, self.layout(queue))?;
        }
        self.status(RUNNING)
    }

    /// Writes a descriptor of `queue`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn describe(
        &mut self,
        queue: u16,
        index: u16,
        (addr, len): (u64, u32),
        flags: u16,
        next: u16,
    ) -> io::Result<()> {
        let page = usize::from(queue) * QUEUE_PAGES;
        self.pages.write(page, u64::from(index) * 16, &descriptor(addr, len, flags, next))
    }

    /// Adds a head to the available ring of `queue`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn offer(&mut self, queue: u16, head: u16) -> io::Result<()> {
        let page = usize::from(queue) * QUEUE_PAGES + 1;
        let at = self.available[usize::from(queue)];
        self.pages.write(page, 4 + 2 * u64::from(at % SIZE), &head.to_le_bytes())?;
        self.set_available(queue, at.wrapping_add(1))
    }

    /// Sets the available index of `queue`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_available(&mut self, queue: u16, index: u16) -> io::Result<()> {
        self.available[usize::from(queue)] = index;
        self.pages.write(usize::from(queue) * QUEUE_PAGES + 1, 2, &index.to_le_bytes())
    }

    /// Rings the doorbell of `queue`.
    ///
    /// # Errors
    /// The error of the configuration space access.
    pub fn ring(&mut self, queue: u16) -> io::Result<()> {
        let at = self.doorbell_offsets[usize::from(queue)] * self.pci.notify_step;
        self.pci.write(Part::Notify, at, &queue.to_le_bytes())
    }

    /// Returns the used index of `queue`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn used(&self, queue: u16) -> io::Result<u16> {
        let mut index = [0; 2];
        self.pages.read(usize::from(queue) * QUEUE_PAGES + 2, 2, &mut index)?;
        Ok(u16::from_le_bytes(index))
    }

    /// Returns used entry `n` of `queue`: head and written bytes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn used_entry(&self, queue: u16, n: u16) -> io::Result<(u32, u32)> {
        let mut entry = [0; 8];
        let at = 4 + 8 * u64::from(n % SIZE);
        self.pages.read(usize::from(queue) * QUEUE_PAGES + 2, at, &mut entry)?;
        let [a, b, c, d, rest @ ..] = entry;
        Ok((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest)))
    }

    /// Returns the physical address of buffer `n`, a page.
    #[must_use]
    pub fn buffer(&self, n: usize) -> u64 {
        self.pages.address(BUFFERS + n)
    }

    /// Writes to buffer `n`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn fill(&self, n: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.pages.write(BUFFERS + n, at, bytes)
    }
}

impl Drop for Device {
    /// Ends the device's access to the pages, which are freed next. Errors are printed.
    fn drop(&mut self) {
        let Err(error) = self.reset() else { return };
        eprintln!("causeway-guest: cannot reset the device: {error}; disabling its bus mastering");
        if let Err(error) = self.pci.master(false) {
            eprintln!("causeway-guest: cannot disable bus mastering: {error}");
        }
    }
}

/// Encodes a descriptor.
#[must_use]
pub fn descriptor(addr: u64, len: u32, flags: u16, next: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&addr.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_device_is_reset_by_its_drop() {
        let (pci, last) = Pci::on_a_file();
        let mut device = Device::on(pci, Pages::without_addresses(BUFFERS));
        device.status(RUNNING).unwrap();
        assert_eq!(last(), (register::STATUS, RUNNING));
        drop(device);
        assert_eq!(last(), (register::STATUS, 0));
    }
}
