//! A virtio device driven by hand: every register and every ring byte is the caller's.

use super::pages::Pages;
use super::pci::{Part, Pci};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Descriptor flags (virtio 1.3, section 2.7.5).
pub const NEXT: u16 = 1;
/// The device writes.
pub const WRITE: u16 = 2;
/// A table of descriptors.
pub const INDIRECT: u16 = 4;
/// Descriptors of each queue that the cases use.
pub const SIZE: u16 = 64;
/// The status of a device that runs: acknowledged, driver, features, driver ok.
pub const RUNNING: u8 = 0xf;
/// The feature bits that the cases negotiate: version 1 and indirect descriptors.
pub const FEATURES: u64 = 1 << 32 | 1 << 28;
/// Pages of each queue: descriptors, available ring, used ring.
const QUEUE_PAGES: usize = 3;
/// Queues that have pages.
const QUEUES: usize = 3;
/// The first page for buffers and tables, and how many there are.
pub const BUFFERS: usize = QUEUE_PAGES * QUEUES;
/// Pages for buffers.
pub const BUFFER_COUNT: usize = 40;
/// How long a reset may take.
const RESET: Duration = Duration::from_secs(10);

/// Registers of the common part.
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

/// Where a queue's parts are said to lie.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Descriptors of the queue.
    pub size: u16,
    /// Physical address of the descriptor table.
    pub desc: u64,
    /// Of the available ring.
    pub avail: u64,
    /// Of the used ring.
    pub used: u64,
}

/// The device and the memory that it is given.
#[derive(Debug)]
pub struct Device {
    /// Its registers.
    pub pci: Pci,
    /// Its memory.
    pub pages: Pages,
    /// Available indices as shown, by queue.
    shown: [u16; QUEUES],
    /// Doorbells, by queue.
    bells: [u32; QUEUES],
}

impl Device {
    /// Over a device that no driver has.
    ///
    /// # Errors
    /// When there is no memory for it whose address is known.
    pub fn new(pci: Pci) -> io::Result<Self> {
        let pages = Pages::new(BUFFERS + BUFFER_COUNT)?;
        Ok(Self { pci, pages, shown: [0; QUEUES], bells: [0; QUEUES] })
    }

    /// Sets the status register.
    ///
    /// # Errors
    /// As all here: what the configuration space reported.
    pub fn status(&mut self, status: u8) -> io::Result<()> {
        self.pci.write(Part::Common, register::STATUS, &[status])
    }

    /// Resets, and waits until that is done.
    ///
    /// # Errors
    /// When it is not done in time.
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

    /// Says which features the driver has.
    ///
    /// # Errors
    /// What the configuration space reported.
    pub fn features(&mut self, features: u64) -> io::Result<()> {
        for half in [0_u32, 1] {
            let bits = (features >> (32 * half)) as u32;
            let select = register::DRIVER_FEATURE_SELECT;
            self.pci.write(Part::Common, select, &half.to_le_bytes())?;
            self.pci.write(Part::Common, register::DRIVER_FEATURE, &bits.to_le_bytes())?;
        }
        Ok(())
    }

    /// The lawful place of `queue`.
    #[must_use]
    pub fn layout(&self, queue: u16) -> Layout {
        let page = usize::from(queue) * QUEUE_PAGES;
        let [desc, avail, used] = [0, 1, 2].map(|n| self.pages.address(page + n));
        Layout { size: SIZE, desc, avail, used }
    }

    /// Says where `queue` lies and enables it.
    ///
    /// # Errors
    /// What the configuration space reported.
    pub fn enable(&mut self, queue: u16, layout: Layout) -> io::Result<()> {
        self.place(queue, layout)?;
        self.pci.write(Part::Common, register::QUEUE_ENABLE, &1_u16.to_le_bytes())
    }

    /// Says where `queue` lies.
    ///
    /// # Errors
    /// What the configuration space reported.
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
        self.bells[usize::from(queue)] = u32::from(u16::from_le_bytes(bell));
        Ok(())
    }

    /// Forgets what the rings said: all their bytes are zero again.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn clear(&mut self) -> io::Result<()> {
        self.shown = [0; QUEUES];
        (0..BUFFERS).try_for_each(|page| self.pages.write(page, 0, &[0; 4096]))
    }

    /// Resets and goes as far as the features: what follows are queues.
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

    /// Everything as a driver should: queues 0 and 1 run.
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
    /// What the kernel reported.
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

    /// Shows a head in `queue`.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn offer(&mut self, queue: u16, head: u16) -> io::Result<()> {
        let page = usize::from(queue) * QUEUE_PAGES + 1;
        let at = self.shown[usize::from(queue)];
        self.pages.write(page, 4 + 2 * u64::from(at % SIZE), &head.to_le_bytes())?;
        self.show(queue, at.wrapping_add(1))
    }

    /// Sets the available index of `queue`.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn show(&mut self, queue: u16, index: u16) -> io::Result<()> {
        self.shown[usize::from(queue)] = index;
        self.pages.write(usize::from(queue) * QUEUE_PAGES + 1, 2, &index.to_le_bytes())
    }

    /// Rings the doorbell of `queue`.
    ///
    /// # Errors
    /// What the configuration space reported.
    pub fn ring(&mut self, queue: u16) -> io::Result<()> {
        let at = self.bells[usize::from(queue)] * self.pci.notify_step;
        self.pci.write(Part::Notify, at, &queue.to_le_bytes())
    }

    /// The used index of `queue`.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn used(&self, queue: u16) -> io::Result<u16> {
        let mut index = [0; 2];
        self.pages.read(usize::from(queue) * QUEUE_PAGES + 2, 2, &mut index)?;
        Ok(u16::from_le_bytes(index))
    }

    /// The `n`th used entry of `queue`: head and written bytes.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn used_entry(&self, queue: u16, n: u16) -> io::Result<(u32, u32)> {
        let mut entry = [0; 8];
        let at = 4 + 8 * u64::from(n % SIZE);
        self.pages.read(usize::from(queue) * QUEUE_PAGES + 2, at, &mut entry)?;
        let [a, b, c, d, rest @ ..] = entry;
        Ok((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest)))
    }

    /// Physical address of buffer `n`, a page.
    #[must_use]
    pub fn buffer(&self, n: usize) -> u64 {
        self.pages.address(BUFFERS + n)
    }

    /// Writes to buffer `n`.
    ///
    /// # Errors
    /// What the kernel reported.
    pub fn fill(&self, n: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.pages.write(BUFFERS + n, at, bytes)
    }
}

/// A descriptor's bytes.
#[must_use]
pub fn descriptor(addr: u64, len: u32, flags: u16, next: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&addr.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}
