//! PCI configuration space of the function: 256 bytes.
//!
//! A ConnectX virtual function with a BAR of doorbell pages (BAR 0, 64 bits, prefetchable), a BAR
//! with the MSI-X table (BAR 2), and the MSI-X capability. The driver writes the command register,
//! the interrupt line, the BARs and the MSI-X control bits; all other bytes are constant. Accesses
//! behind the end read zeros and write nothing.
//!
//! Only `registers` reads and writes it, in the attachment's control thread, when the VMM passes an
//! access of its guest on. Values that the driver writes have no effect in this process: the VMM
//! maps the BARs and delivers interrupts. There are no PCI Express, power management or extended
//! capabilities.

use causeway_wire::mlx5::registers::{PCI_DEVICE, PCI_VENDOR};

use crate::limits::{MSIX_PENDING_OFFSET, MSIX_REGION_BYTES};

/// Length, in bytes.
pub const CONFIG_BYTES: usize = 256;
const CLASS_ETHERNET: [u8; 3] = [0, 0, 2];
const COMMAND: usize = 0x04;
const BAR0: usize = 0x10;
const BAR2: usize = 0x18;
const INTERRUPT_LINE: usize = 0x3c;
const MSIX: usize = 0x40;
const MSIX_ID: u8 = 0x11;
/// Memory, 64 bits, prefetchable.
const BAR0_FLAGS: u32 = 0xc;
/// Index of the BAR that holds the MSI-X table.
const MSIX_BAR: u32 = 2;

/// The registers, and for each byte the bits that the driver may write.
#[derive(Debug, Clone)]
pub struct ConfigSpace {
    bytes: [u8; CONFIG_BYTES],
    writable: [u8; CONFIG_BYTES],
}

impl ConfigSpace {
    /// Returns the registers after a reset. `bar_bytes` is the length of BAR 0, a power of two;
    /// `vectors` is the number of MSI-X vectors, at least 1.
    pub fn new(bar_bytes: u64, vectors: u16) -> Self {
        let mut new = Self { bytes: [0; CONFIG_BYTES], writable: [0; CONFIG_BYTES] };
        new.set(0x00, &PCI_VENDOR.to_le_bytes());
        new.set(0x02, &PCI_DEVICE.to_le_bytes());
        // The status register: a list of capabilities exists.
        new.set(0x06, &0x0010_u16.to_le_bytes());
        new.set(0x09, &CLASS_ETHERNET);
        new.set(BAR0, &BAR0_FLAGS.to_le_bytes());
        new.set(0x2c, &PCI_VENDOR.to_le_bytes());
        new.set(0x2e, &1_u16.to_le_bytes());
        new.set(0x34, &[MSIX as u8]);
        new.set(MSIX, &[MSIX_ID, 0]);
        new.set(MSIX.wrapping_add(2), &vectors.saturating_sub(1).to_le_bytes());
        new.set(MSIX.wrapping_add(4), &MSIX_BAR.to_le_bytes());
        new.set(MSIX.wrapping_add(8), &(MSIX_PENDING_OFFSET as u32 | MSIX_BAR).to_le_bytes());
        // Memory space, bus master, interrupt disable.
        new.permit(COMMAND, &0x0406_u16.to_le_bytes());
        new.permit(INTERRUPT_LINE, &[0xff]);
        new.permit(BAR0, &(!bar_bytes.wrapping_sub(1)).to_le_bytes());
        new.permit(BAR2, &(!MSIX_REGION_BYTES.wrapping_sub(1) as u32).to_le_bytes());
        // MSI-X enable, function mask.
        new.permit(MSIX.wrapping_add(2), &0xc000_u16.to_le_bytes());
        new
    }

    /// Copies registers out.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        into.fill(0);
        let start = usize::try_from(offset).unwrap_or(CONFIG_BYTES);
        for (to, from) in into.iter_mut().zip(self.bytes.iter().skip(start)) {
            *to = *from;
        }
    }

    /// Writes registers; read-only bits keep their values.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        let start = usize::try_from(offset).unwrap_or(CONFIG_BYTES);
        let registers = self.bytes.iter_mut().zip(self.writable).skip(start);
        for ((register, mask), value) in registers.zip(from) {
            *register = (*register & !mask) | (value & mask);
        }
    }

    /// Sets registers at an offset.
    fn set(&mut self, at: usize, value: &[u8]) {
        for (register, value) in self.bytes.iter_mut().skip(at).zip(value) {
            *register = *value;
        }
    }

    /// Permits writes to the bits of a mask at an offset.
    fn permit(&mut self, at: usize, mask: &[u8]) {
        for (writable, mask) in self.writable.iter_mut().skip(at).zip(mask) {
            *writable = *mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(config: &ConfigSpace, at: u64) -> u32 {
        let mut bytes = [0; 4];
        config.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn config_space_names_a_virtual_function_with_msix() {
        let config = ConfigSpace::new(32 << 20, 8);
        assert_eq!(word(&config, 0), 0x101e_15b3);
        assert_eq!(word(&config, 8) >> 8, 0x02_0000);
        assert_eq!(word(&config, 0x34), 0x40);
        assert_eq!(word(&config, 0x40), 0x0007_0011);
        assert_eq!([word(&config, 0x44), word(&config, 0x48)], [2, 0x802]);
    }

    #[test]
    fn config_space_bars_report_their_length() {
        let mut config = ConfigSpace::new(32 << 20, 8);
        config.write(0x10, &[0xff; 8]);
        config.write(0x18, &[0xff; 4]);
        assert_eq!(word(&config, 0x10), 0xfe00_000c);
        assert_eq!(word(&config, 0x14), 0xffff_ffff);
        assert_eq!(word(&config, 0x18), 0xffff_f000);
    }

    #[test]
    fn config_space_keeps_constant_bits_and_ignores_bytes_behind_the_end() {
        let mut config = ConfigSpace::new(32 << 20, 8);
        config.write(0, &[0xff; 256]);
        config.write(u64::MAX, &[0xff; 8]);
        config.write(254, &[0xff; 8]);
        assert_eq!(word(&config, 0), 0x101e_15b3);
        assert_eq!(word(&config, 0x40), 0xc007_0011);
        assert_eq!(word(&config, 254), 0);
        assert_eq!(word(&config, u64::MAX), 0);
    }
}
