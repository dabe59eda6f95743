//! Announcements, by which NICs discover each other: a raw packet to the broadcast address, as
//! native MX and Open-MX send it. When to send, and how long to trust, is decided in `mxoe`.
//!
//! An announcement has no mark and no authentication: the caller compares its MAC with the source
//! of the frame, and so excludes other raw packets, which mappers of native MX send. It has no
//! name; NICs are queried for that. Caller: `mxoe::discovery`. It runs in the dispatcher's turn of
//! the service `mx`. A packet that is cut off is an error, and discovery drops it.

use crate::field::{Reader, Truncated, Writer};

/// Length of a raw packet's data in an announcement, in bytes; the frame has 64.
pub const LEN: usize = 47;

/// The announcement of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// MAC of the NIC, first byte most significant, in 48 bits.
    pub nic: u64,
    /// Random number of the announcing process. A changed number means a restart: peers announce
    /// themselves again.
    pub serial: u32,
}

impl Announcement {
    /// Parses the data of a [raw packet](super::Packet::Raw). The format has no mark of its own:
    /// the caller must compare the MAC with the frame's source to exclude other raw packets.
    ///
    /// # Errors
    /// [`Truncated`] if `data` is too short.
    pub fn parse(data: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("announcement", LEN.saturating_sub(20), data)?;
        let _: [u8; 15] = r.take();
        let nic = u64::from_be_bytes(r.take());
        Ok(Self { nic, serial: r.u32_be() })
    }

    /// Encodes the data of a [raw packet](super::Packet::Raw).
    pub fn emit(&self) -> [u8; LEN] {
        let mut data = [0; LEN];
        let mut w = Writer::new(&mut data);
        w.put([0; 15]);
        w.put(self.nic.to_be_bytes());
        w.put(self.serial.to_be_bytes());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Header, Packet, emit, parse};
    use super::*;

    #[test]
    fn interop_announcements_lie_as_finders_have_them() {
        let announcement = Announcement { nic: 0x0200_0000_0007, serial: 0x0a0b_0c0d };
        let data = announcement.emit();
        let header = Header { destination: [0xff; 6], source: [2, 0, 0, 0, 0, 7], peer_index: 0 };
        let (head, rest) = emit(&header, &Packet::Raw(&data));
        let mut golden = [0; 64];
        golden[..6].fill(0xff);
        golden[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        golden[12..17].copy_from_slice(&[0x86, 0xdf, 0, 0, 1]);
        golden[34..44].copy_from_slice(&[2, 0, 0, 0, 0, 7, 0x0a, 0x0b, 0x0c, 0x0d]);
        assert_eq!([head.bytes(), rest].concat(), golden);
        let Ok((_, Packet::Raw(data))) = parse(&golden) else { panic!("it is raw") };
        assert_eq!(Announcement::parse(data), Ok(announcement));
        assert!(Announcement::parse(&data[..26]).is_err());
    }
}
