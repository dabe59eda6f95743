//! The instructions that touch shared bytes.
//!
//! Another process may write to these bytes while we read them. To Rust that would be a data race,
//! so the bytes are moved by inline assembly, which the compiler treats as opaque: it cannot repeat
//! a single read, nor keep a shared byte in place of the private copy that was checked.
//!
//! Callers (`crate::access`, `crate::copy`, `crate::map`, `crate::view`, and `channel::area`, which
//! copies between processes by [`copy_shared`]) have translated and checked the addresses, in any
//! thread; here nothing is checked. The moves are neither atomic as a whole nor ordered beyond the
//! processor's rules: another process may see a part of a copy, and a reader may get a mixture of
//! old and new bytes. A lost page is replaced by [`crate::fault`]. On processors other than x86-64,
//! bytes are moved one at a time by volatile accesses.
//!
//! Budget: below 16 bytes two overlapping moves; below 2 KiB (a few KiB in [`copy_shared`] with a
//! late `STRING`, for ranges that are in a near cache) 16-byte moves, to 128 bytes without a loop,
//! then 32-byte ones where the processor has them; above `rep movsb`, which is within a few percent
//! of the best copy on processors with fast short `rep` strings, if the positions of both ranges in
//! their pages allow it (`string_is_slow`). Of frames of 1500 bytes from port to port, moves carry
//! 1.1 to 1.2 times as many as `rep movsb`, though of memory that no cache of the core has it copies
//! 1.1 times as fast.

use crate::trace;

/// Prefetches the cache line at `at`. Any address is allowed: a prefetch never faults.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: the instruction reads nothing that the program can see, and never faults.
    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast()) }
}

/// As [`prefetch`], for a line that will be written: other processors give up their copies now
/// rather than at the write. By name, because compilers for the oldest processors turn the hint
/// into a prefetch for reading; every 64-bit processor accepts the instruction.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch_write(at: *const u8) {
    // SAFETY: the instruction changes nothing that the program can see, and never faults.
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{at}]",
            at = in(reg) at,
            options(nostack, preserves_flags)
        );
    }
}

/// Does nothing here.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch_write(_at: *const u8) {}

/// Does nothing here.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch(_at: *const u8) {}

/// Loads the two words at `src`, each once: a descriptor, straight into registers.
///
/// # Safety
/// 16 bytes must be mapped there; they need no alignment.
#[inline]
pub(crate) unsafe fn load_pair(src: *const u8) -> [u64; 2] {
    // SAFETY: the caller guarantees the 16 bytes.
    unsafe { [load_word(src), load_word(src.add(8))] }
}

/// Loads the word at `src`.
///
/// # Safety
/// 8 bytes must be mapped there; they need no alignment.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn load_word(src: *const u8) -> u64 {
    trace::read(src, 8);
    let word: u64;
    // SAFETY: the caller guarantees the 8 bytes.
    unsafe {
        std::arch::asm!(
            "mov {word}, qword ptr [{src}]",
            src = in(reg) src,
            word = out(reg) word,
            options(nostack, preserves_flags)
        );
    }
    word
}

/// Loads the half word at `src`.
///
/// # Safety
/// 4 bytes must be mapped there; they need no alignment.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn load_half(src: *const u8) -> u32 {
    trace::read(src, 4);
    let half: u32;
    // SAFETY: the caller guarantees the 4 bytes.
    unsafe {
        std::arch::asm!(
            "mov {half:e}, dword ptr [{src}]",
            src = in(reg) src,
            half = out(reg) half,
            options(nostack, preserves_flags)
        );
    }
    half
}

/// Stores one word at `dst`.
///
/// # Safety
/// 8 bytes must be mapped there; they need no alignment.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn store_word(dst: *mut u8, word: u64) {
    trace::written(dst, 8);
    // SAFETY: the caller guarantees the 8 bytes.
    unsafe {
        std::arch::asm!(
            "mov qword ptr [{dst}], {word}",
            dst = in(reg) dst,
            word = in(reg) word,
            options(nostack, preserves_flags)
        );
    }
}

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn load_word(src: *const u8) -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: the caller guarantees the 8 bytes; `bytes` is private and has as many.
    unsafe { copy(bytes.as_mut_ptr(), src, 8) };
    u64::from_ne_bytes(bytes)
}

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn load_half(src: *const u8) -> u32 {
    let mut bytes = [0_u8; 4];
    // SAFETY: the caller guarantees the 4 bytes; `bytes` is private and has as many.
    unsafe { copy(bytes.as_mut_ptr(), src, 4) };
    u32::from_ne_bytes(bytes)
}

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn store_word(dst: *mut u8, word: u64) {
    // SAFETY: the caller guarantees the 8 bytes; the array is private and has as many.
    unsafe { copy(dst, word.to_ne_bytes().as_ptr(), 8) };
}

/// From here on `rep movsb`, in bytes, between the memories of guests.
const STRING_FROM: usize = 2048;

/// Copies `len` bytes from `src` to `dst`; either or both may be shared.
///
/// # Safety
/// Both ranges must be mapped for the whole call (a lost page behind them is handled by
/// [`crate::fault`]). Overlapping ranges give a defined if useless result.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    trace::read(src, len);
    trace::written(dst, len);
    // SAFETY: the caller guarantees both ranges.
    unsafe { copy_shared::<STRING_FROM>(dst, src, len) }
}

/// Whether `rep movsb` from `src` to `dst` is far slower than moves: the destination begins 1 to 63
/// bytes further in its page than the source, as a frame does behind a header of 12 bytes. Each
/// store then appears to overlap the next loads, by the low 12 bits of their addresses. Measured on
/// Zen 3 for 1 to 31 bytes: 2 GB/s, 20 times slower than by moves, in the cache and out of it.
#[cfg(target_arch = "x86_64")]
#[inline]
fn string_is_slow(dst: usize, src: usize) -> bool {
    const PAGE_MASK: usize = 4095;
    (1..64).contains(&(dst.wrapping_sub(src) & PAGE_MASK))
}

/// Copies `len` bytes from `src` to `dst`; other processes may write to either meanwhile. Uses `rep
/// movsb` from `STRING` bytes on, unless `string_is_slow`: its start-up costs some ten
/// nanoseconds, so that vector moves are faster up to a few KiB while both ranges are in a near
/// cache.
///
/// # Safety
/// Both ranges must be mapped for the whole call (a lost page behind them is handled by
/// [`crate::fault`]). Overlapping ranges give a defined if useless result.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn copy_shared<const STRING: usize>(dst: *mut u8, src: *const u8, len: usize) {
    if len >= STRING && !string_is_slow(dst.addr(), src.addr()) {
        // SAFETY: the caller guarantees both ranges.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags)
            );
        }
    } else if len >= 16 {
        // SAFETY: the caller guarantees both ranges; len is at least 16.
        unsafe { copy_vector(dst, src, len) }
    } else {
        // SAFETY: the caller guarantees both ranges; len is below 16.
        unsafe { copy_word(dst, src, len) }
    }
}

/// 16 bytes and more: 16-byte moves from both ends where eight are enough; else four at a time, and
/// four that end at the last byte.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_vector(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller guarantees both ranges; each case has the length that its moves need.
    unsafe {
        match len {
            16..=32 => copy_two(dst, src, len),
            33..=64 => copy_four(dst, src, len),
            65..=80 => {
                copy_four(dst, src, 64);
                let last = len.wrapping_sub(16);
                copy_one(dst.add(last), src.add(last));
            }
            81..=128 => {
                let last = len.wrapping_sub(64);
                copy_four(dst, src, 64);
                copy_four(dst.add(last), src.add(last), 64);
            }
            _ if std::arch::is_x86_feature_detected!("avx") => copy_wide(dst, src, len),
            _ => copy_many(dst, src, len),
        }
    }
}

/// 16 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_one(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller guarantees 16 bytes of both ranges.
    unsafe {
        std::arch::asm!(
            "movups {a}, xmmword ptr [{src}]",
            "movups xmmword ptr [{dst}], {a}",
            src = in(reg) src,
            dst = in(reg) dst,
            a = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// 16 to 32 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_two(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: 16 bytes from either end lie within [0, len).
    unsafe {
        std::arch::asm!(
            "movups {a}, xmmword ptr [{src}]",
            "movups {b}, xmmword ptr [{src} + {len} - 16]",
            "movups xmmword ptr [{dst}], {a}",
            "movups xmmword ptr [{dst} + {len} - 16], {b}",
            len = in(reg) len,
            src = in(reg) src,
            dst = in(reg) dst,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// 32 to 64 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_four(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: 32 bytes from either end lie within [0, len).
    unsafe {
        std::arch::asm!(
            "movups {a}, xmmword ptr [{src}]",
            "movups {b}, xmmword ptr [{src} + 16]",
            "movups {c}, xmmword ptr [{src} + {len} - 32]",
            "movups {d}, xmmword ptr [{src} + {len} - 16]",
            "movups xmmword ptr [{dst}], {a}",
            "movups xmmword ptr [{dst} + 16], {b}",
            "movups xmmword ptr [{dst} + {len} - 32], {c}",
            "movups xmmword ptr [{dst} + {len} - 16], {d}",
            len = in(reg) len,
            src = in(reg) src,
            dst = in(reg) dst,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// 64 bytes and more: four moves at a time, then four that end at the last byte.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_many(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: every move lies within [0, len): the loop stops before the last
    // 64 bytes, and the last moves cover exactly these.
    unsafe {
        std::arch::asm!(
            "lea {last}, [{len} - 64]",
            "xor {at:e}, {at:e}",
            "jmp 3f",
            "2:",
            "movups {a}, xmmword ptr [{src} + {at}]",
            "movups {b}, xmmword ptr [{src} + {at} + 16]",
            "movups {c}, xmmword ptr [{src} + {at} + 32]",
            "movups {d}, xmmword ptr [{src} + {at} + 48]",
            "movups xmmword ptr [{dst} + {at}], {a}",
            "movups xmmword ptr [{dst} + {at} + 16], {b}",
            "movups xmmword ptr [{dst} + {at} + 32], {c}",
            "movups xmmword ptr [{dst} + {at} + 48], {d}",
            "add {at}, 64",
            "3:",
            "cmp {at}, {last}",
            "jb 2b",
            "movups {a}, xmmword ptr [{src} + {last}]",
            "movups {b}, xmmword ptr [{src} + {last} + 16]",
            "movups {c}, xmmword ptr [{src} + {last} + 32]",
            "movups {d}, xmmword ptr [{src} + {last} + 48]",
            "movups xmmword ptr [{dst} + {last}], {a}",
            "movups xmmword ptr [{dst} + {last} + 16], {b}",
            "movups xmmword ptr [{dst} + {last} + 32], {c}",
            "movups xmmword ptr [{dst} + {last} + 48], {d}",
            len = in(reg) len,
            src = in(reg) src,
            dst = in(reg) dst,
            at = out(reg) _,
            last = out(reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// As [`copy_many`], by 32-byte moves: half as many stores wait for lines that another processor
/// has. 64 bytes and more, on processors with AVX.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_wide(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: every move lies within [0, len), as in `copy_many`; the caller checked that the
    // processor has these moves. No other code uses the upper halves of the registers.
    unsafe {
        std::arch::asm!(
            "lea {last}, [{len} - 64]",
            "xor {at:e}, {at:e}",
            "jmp 3f",
            "2:",
            "vmovdqu ymm0, ymmword ptr [{src} + {at}]",
            "vmovdqu ymm1, ymmword ptr [{src} + {at} + 32]",
            "vmovdqu ymmword ptr [{dst} + {at}], ymm0",
            "vmovdqu ymmword ptr [{dst} + {at} + 32], ymm1",
            "add {at}, 64",
            "3:",
            "cmp {at}, {last}",
            "jb 2b",
            "vmovdqu ymm0, ymmword ptr [{src} + {last}]",
            "vmovdqu ymm1, ymmword ptr [{src} + {last} + 32]",
            "vmovdqu ymmword ptr [{dst} + {last}], ymm0",
            "vmovdqu ymmword ptr [{dst} + {last} + 32], ymm1",
            "vzeroupper",
            len = in(reg) len,
            src = in(reg) src,
            dst = in(reg) dst,
            at = out(reg) _,
            last = out(reg) _,
            out("xmm0") _,
            out("xmm1") _,
            // `vzeroupper` takes the upper half of all of them.
            out("xmm2") _,
            out("xmm3") _,
            out("xmm4") _,
            out("xmm5") _,
            out("xmm6") _,
            out("xmm7") _,
            out("xmm8") _,
            out("xmm9") _,
            out("xmm10") _,
            out("xmm11") _,
            out("xmm12") _,
            out("xmm13") _,
            out("xmm14") _,
            out("xmm15") _,
            options(nostack)
        );
    }
}

/// 0 to 15 bytes: one or two moves of the widest fitting word.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_word(dst: *mut u8, src: *const u8, len: usize) {
    macro_rules! two {
        ($mov:literal, $a:literal, $b:literal, $width:literal, $class:ident) => {
            // SAFETY: two moves of `$width` bytes, at 0 and ending at len >= $width.
            unsafe {
                std::arch::asm!(
                    concat!("mov {x", $a, "}, ", $b, " ptr [{src}]"),
                    concat!("mov {y", $a, "}, ", $b, " ptr [{src} + {len} - ", $width, "]"),
                    concat!("mov ", $b, " ptr [{dst}], {x", $a, "}"),
                    concat!("mov ", $b, " ptr [{dst} + {len} - ", $width, "], {y", $a, "}"),
                    len = in(reg) len,
                    src = in(reg) src,
                    dst = in(reg) dst,
                    x = out($class) _,
                    y = out($class) _,
                    options(nostack, preserves_flags)
                )
            }
        };
    }
    match len {
        8..=15 => two!("mov", ":r", "qword", "8", reg),
        4..=7 => two!("mov", ":e", "dword", "4", reg),
        2..=3 => two!("mov", ":x", "word", "2", reg),
        1 => two!("mov", "", "byte", "1", reg_byte),
        _ => {}
    }
}

/// Copies `len` bytes from `src` to `dst`; either or both may be shared.
///
/// # Safety
/// As on x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn copy_shared<const STRING: usize>(dst: *mut u8, src: *const u8, len: usize) {
    let mut at = 0_usize;
    while at < len {
        // SAFETY: at < len, and the caller guarantees both ranges.
        unsafe { dst.add(at).write_volatile(src.add(at).read_volatile()) };
        at = at.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn copy_strings_are_left_out_for_destinations_shortly_behind_the_source_in_a_page() {
        let src = 0x7f00_0000_1ff0_usize;
        for ahead in 0..4096 {
            for dst in [src + ahead, src + ahead + (5 << 12), src + ahead - (3 << 12)] {
                assert_eq!(super::string_is_slow(dst, src), (1..64).contains(&ahead), "{ahead}");
            }
        }
        assert!(super::string_is_slow(5, usize::MAX - 9), "the difference wraps: 15 bytes");
    }

    #[test]
    fn copy_moves_every_length_at_each_distance_within_a_page() {
        let from: Vec<u8> =
            (0..12_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let page = from.as_ptr().align_offset(4096);
        let mut room = vec![0_u8; 20_000];
        let base = room.as_ptr().align_offset(4096);
        for ahead in (0..70).chain([127, 128, 4000, 4095]) {
            for len in [2047, 2048, 2049, 4096, 7001] {
                room.fill(0xa5);
                let at = base + 64 + ahead;
                // SAFETY: `room` has at + len bytes and more, and `from` has page + 64 + len bytes at least.
                unsafe {
                    super::copy(room.as_mut_ptr().add(at), from.as_ptr().add(page).add(64), len)
                };
                assert_eq!(&room[at..at + len], &from[page + 64..page + 64 + len], "{ahead} {len}");
                let around = room[..at].iter().chain(&room[at + len..]);
                assert!(around.copied().all(|b| b == 0xa5), "{ahead} {len}");
            }
        }
    }

    #[test]
    fn copy_moves_every_length() {
        let from: Vec<u8> =
            (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in (0..600).chain([1023, 1024, 1025, 4095, 4096, 4999]) {
            for shift in [0, 1, 3, 8] {
                let len = len.min(from.len() - shift);
                let mut to = vec![0xa5_u8; len + 32];
                // With an early and with a late `rep movsb`.
                for copy in [super::copy, super::copy_shared::<4096>] {
                    to.fill(0xa5);
                    // SAFETY: `to` has 16 bytes before and after; `from` has shift + len bytes.
                    unsafe { copy(to.as_mut_ptr().add(16), from.as_ptr().add(shift), len) };
                    assert_eq!(&to[16..16 + len], &from[shift..shift + len], "len {len}");
                    let around = to[..16].iter().chain(&to[16 + len..]);
                    assert!(around.copied().all(|b| b == 0xa5), "len {len}");
                }
            }
        }
    }
}
