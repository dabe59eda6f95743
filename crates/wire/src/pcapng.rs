//! Writes captured frames as pcapng (draft-ietf-opsawg-pcapng), in the byte order of this machine,
//! as tcpdump, tshark and Wireshark read it. `fabric::capture`, which bounds the buffer, uses it in
//! the threads of the shards that record frames and messages; this module reads no files and
//! chooses no frames.
//!
//! The functions append blocks to a buffer without a limit; the caller writes the buffer to a file
//! and empties it. Times have nanosecond resolution. Comments, statistics and name resolution
//! blocks are not written. The file must start with [`section`], then its interfaces, then frames:
//! the order is not checked.

/// Options: `opt_endofopt`, `if_name`, `if_tsresol`, `epb_flags`, `shb_userappl`.
const OPT_END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const SHB_USERAPPL: u16 = 4;

/// Format of the packets of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum LinkType {
    /// Ethernet frames.
    Ethernet = 1,
    /// Socket packets ([`crate::vsock_monitor`]).
    Vsock = 271,
}

/// Direction of a frame, relative to the captured interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// The interface received the frame.
    In = 1,
    /// The interface sent the frame.
    Out = 2,
}

/// Rounds a length up to whole 32-bit words.
const fn padded(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// Appends a block of this type, with the body that `fill` appends.
fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let len = out.len().saturating_sub(start).saturating_add(4);
    let len = u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes();
    out.extend_from_slice(&len);
    let field = start.saturating_add(4)..start.saturating_add(8);
    if let Some(field) = out.get_mut(field) {
        field.copy_from_slice(&len);
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().saturating_add(padded(bytes.len()).saturating_sub(bytes.len())), 0);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_ne_bytes());
    put(out, value.get(..value.len().min(usize::from(u16::MAX))).unwrap_or(value));
}

/// Appends the section header, the start of a file.
pub fn section(out: &mut Vec<u8>, application: &str) {
    block(out, 0x0a0d_0d0a, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_ne_bytes());
        out.extend_from_slice(&1_u16.to_ne_bytes());
        out.extend_from_slice(&0_u16.to_ne_bytes());
        out.extend_from_slice(&u64::MAX.to_ne_bytes());
        option(out, SHB_USERAPPL, application.as_bytes());
        option(out, OPT_END, &[]);
    });
}

/// Appends an interface with packets of a format; interfaces are numbered from 0 in their order.
/// `snap` is the capture length of each frame in bytes, 0 for unlimited. Times are in nanoseconds.
pub fn interface(out: &mut Vec<u8>, link_type: LinkType, name: &str, snap: u32) {
    block(out, 1, |out| {
        out.extend_from_slice(&(link_type as u16).to_ne_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&snap.to_ne_bytes());
        option(out, IF_NAME, name.as_bytes());
        option(out, IF_TSRESOL, &[9]);
        option(out, OPT_END, &[]);
    });
}

/// Appends a frame of `len` bytes, of which `kept` were captured at interface `number`, at
/// `wall_ns` nanoseconds since 1970 (UTC).
pub fn frame(
    out: &mut Vec<u8>,
    number: u32,
    wall_ns: u64,
    direction: Direction,
    kept: &[u8],
    len: usize,
) {
    let [low, high] = [wall_ns as u32, (wall_ns >> 32) as u32];
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes();
    block(out, 6, |out| {
        out.extend_from_slice(&number.to_ne_bytes());
        out.extend_from_slice(&high.to_ne_bytes());
        out.extend_from_slice(&low.to_ne_bytes());
        out.extend_from_slice(&count(kept.len()));
        out.extend_from_slice(&count(len));
        put(out, kept);
        option(out, EPB_FLAGS, &(direction as u32).to_ne_bytes());
        option(out, OPT_END, &[]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the blocks, and checks that both lengths of each block agree.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let mut all = Vec::new();
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        while !bytes.is_empty() {
            let len = word(&bytes[4..]) as usize;
            assert!(len >= 12 && len.is_multiple_of(4), "{len}");
            assert_eq!(word(&bytes[len - 4..]) as usize, len);
            all.push((word(bytes), &bytes[8..len - 4]));
            bytes = &bytes[len..];
        }
        all
    }

    #[test]
    fn pcapng_blocks_are_complete_and_in_order() {
        let mut out = Vec::new();
        section(&mut out, "causeway 0.1");
        interface(&mut out, LinkType::Vsock, "vm1", 0);
        for len in [0, 1, 59, 60, 1514] {
            frame(&mut out, 0, 0x0102_0304_0506_0708, Direction::Out, &vec![7; len], 9000);
        }
        let all = blocks(&out);
        let kinds: Vec<u32> = all.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6, 6, 6]);
        assert_eq!(all[1].1[..2], 271_u16.to_ne_bytes());
        let (_, last) = all[6];
        let word = |at: usize| u32::from_ne_bytes(last[at..at + 4].try_into().unwrap());
        assert_eq!((word(4), word(8)), (0x0102_0304, 0x0506_0708));
        assert_eq!((word(12), word(16)), (1514, 9000));
        assert_eq!(last[20..20 + 1514], [7; 1514]);
    }
}
