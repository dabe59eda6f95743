//! The bytes of a memory region in the journal: fixed values, and the page list behind them.
//!
//! `record::journal` stores the bytes as the present value of a region, and `record::restore` reads
//! them after a restart of causewayd, both in the dispatcher's thread. A list of 2^20 pages takes 8
//! MiB. The reader checks lengths and codes ([`decode`] returns `None` for a malformed entry); the
//! values themselves are checked when the region is registered again (`verbs::region`).

use causeway_verbs::region::{Region, RegionMemory, Rights};

/// Length of the fixed values, in bytes.
const HEAD: usize = 40;
/// Code of a region of all memory.
const WHOLE: u8 = 0;
/// Code of a region with a page list.
const PAGES: u8 = 1;

/// Returns the fixed values and the page list of a region.
pub(super) fn encode(region: &Region) -> ([u8; HEAD], Vec<u8>) {
    let (code, shift, capacity, pages) = match &region.memory {
        RegionMemory::Whole => (WHOLE, 0, 0, Vec::new()),
        RegionMemory::Pages { shift, pages, capacity } => {
            let bytes = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
            (PAGES, *shift, *capacity, bytes)
        }
    };
    let small =
        [code, shift, region.rights.bits(), u8::from(region.is_free), region.variable, 0, 0, 0];
    let values = [
        small,
        u64::from(region.domain).to_le_bytes(),
        region.base.to_le_bytes(),
        region.len.to_le_bytes(),
        u64::from(capacity).to_le_bytes(),
    ];
    let mut head = [0; HEAD];
    for (to, from) in head.chunks_exact_mut(8).zip(values) {
        to.copy_from_slice(&from);
    }
    (head, pages)
}

/// Returns the region of an entry; `None` if it is malformed.
pub(super) fn decode(bytes: &[u8]) -> Option<Region> {
    let (head, list) = bytes.split_at_checked(HEAD)?;
    let (words, _) = head.as_chunks::<8>();
    let [[code, shift, rights, is_free, variable, ..], domain, base, len, capacity] = *words else {
        return None;
    };
    let number = |bytes| u32::try_from(u64::from_le_bytes(bytes)).ok();
    let memory = match code {
        WHOLE => RegionMemory::Whole,
        PAGES => {
            let (pages, rest) = list.as_chunks::<8>();
            if !rest.is_empty() {
                return None;
            }
            let pages = pages.iter().map(|page| u64::from_le_bytes(*page)).collect();
            RegionMemory::Pages { shift, pages, capacity: number(capacity)? }
        }
        _ => return None,
    };
    Some(Region {
        domain: number(domain)?,
        base: u64::from_le_bytes(base),
        len: u64::from_le_bytes(len),
        rights: Rights::from_bits(rights)?,
        is_free: is_free != 0,
        variable,
        memory,
    })
}
