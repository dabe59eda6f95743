//! The driver's last writes to registers, which the next causewayd receives.
//!
//! [`super::record`] notes a write after causewayd accepted it, in the relay's thread;
//! [`super::replay`] repeats, for each place (region, offset and length) that the driver wrote
//! since the start or the last reset, the value written last, in the order of these writes. At most
//! [`REGISTERS_MAX`] (1,024) places with values of up to [`REGISTER_BYTES_MAX`] (64) bytes are
//! kept; a write beyond that has reached causewayd and is not recorded. Places that overlap are
//! separate.
//!
//! A write to a doorbell page ([`is_doorbell`]: BAR 0 from 64 KiB on) reports work and sets no
//! register, so that the write is not recorded: a guest has thousands of doorbell pages. The holder
//! does not know the meaning of any register.

use std::collections::BTreeMap;

use causeway_attach::vfio_user::message::RegionAccess;

use crate::limits::{DOORBELL_REGION, REGISTER_BYTES_MAX, REGISTER_SPACE_BYTES, REGISTERS_MAX};

/// The values of registers.
#[derive(Debug, Default)]
pub struct Registers {
    /// Number of the write and the value, by region, offset and length.
    writes: BTreeMap<(u32, u64, u32), (u64, Vec<u8>)>,
    /// Number of writes so far.
    count: u64,
}

/// Returns whether an access is one to a doorbell page.
pub fn is_doorbell(access: &RegionAccess) -> bool {
    access.region == DOORBELL_REGION && access.offset >= REGISTER_SPACE_BYTES
}

impl Registers {
    /// Records a write, unless it rings a doorbell.
    pub fn note(&mut self, access: &RegionAccess, data: &[u8]) {
        if is_doorbell(access) {
            return;
        }
        let key = (access.region, access.offset, access.count);
        let has_room = self.writes.len() < REGISTERS_MAX || self.writes.contains_key(&key);
        if data.len() <= REGISTER_BYTES_MAX && has_room {
            self.count = self.count.saturating_add(1);
            self.writes.insert(key, (self.count, data.to_vec()));
        }
    }

    /// Forgets all writes: the device was reset.
    pub fn clear(&mut self) {
        self.writes.clear();
    }

    /// Returns the payloads of REGION_WRITE that repeat the writes.
    pub fn payloads(&self) -> Vec<Vec<u8>> {
        let mut writes: Vec<_> = self.writes.iter().collect();
        writes.sort_by_key(|(_, (number, _))| *number);
        let payload = |(region, offset, count), data: &[u8]| {
            [RegionAccess { offset, region, count }.emit().as_slice(), data].concat()
        };
        writes.into_iter().map(|(key, (_, data))| payload(*key, data)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vfio_registers_repeat_the_last_write_of_each_place_in_order() {
        let mut registers = Registers::default();
        let at = |offset| RegionAccess { offset, region: 0, count: 4 };
        registers.note(&at(16), &[1; 4]);
        registers.note(&at(20), &[2; 4]);
        registers.note(&at(16), &[3; 4]);
        registers.note(&at(24), &[0; REGISTER_BYTES_MAX + 1]);
        let values: Vec<u8> =
            registers.payloads().iter().filter_map(|payload| payload.last().copied()).collect();
        assert_eq!(values, [2, 3]);
        for offset in 0..2 * REGISTERS_MAX as u64 {
            registers.note(&at(offset), &[4; 4]);
        }
        assert_eq!(registers.payloads().len(), REGISTERS_MAX);
        registers.clear();
        assert!(registers.payloads().is_empty());
    }

    #[test]
    fn vfio_registers_keep_their_room_from_doorbells() {
        let mut registers = Registers::default();
        let at = |region, offset| RegionAccess { offset, region, count: 8 };
        for page in 0..2 * REGISTERS_MAX as u64 {
            registers.note(&at(0, REGISTER_SPACE_BYTES + page * 4096), &[1; 8]);
        }
        assert!(registers.payloads().is_empty());
        registers.note(&at(0, REGISTER_SPACE_BYTES - 8), &[2; 8]);
        registers.note(&at(2, REGISTER_SPACE_BYTES), &[3; 8]);
        assert_eq!(registers.payloads().len(), 2, "registers, and a region without doorbells");
    }
}
