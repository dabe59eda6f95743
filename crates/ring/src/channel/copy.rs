//! Copies between private memory and memory that the peer may change meanwhile.
//!
//! By instructions that the compiler can neither repeat nor reorder. Vector moves are the faster
//! ones up to a few KiB, `rep movsb` needs no registers and is as fast above.
#![allow(unsafe_code, reason = "raw copies of shared memory")]

/// From here on `rep movsb`, in bytes.
#[cfg(target_arch = "x86_64")]
const STRING_FROM: usize = 4096;

/// Copies `len` bytes from `src` to `dst`; one of them may be shared.
///
/// # Safety
/// Both must be mapped for the whole call and must not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    if len >= STRING_FROM {
        // SAFETY: the caller vouches for both.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags)
            );
        }
    } else if len >= 64 {
        // SAFETY: the caller vouches for both; there are at least 64 bytes.
        unsafe { lines(dst, src, len) }
    } else {
        // SAFETY: the caller vouches for both.
        unsafe { few(dst, src, len) }
    }
}

/// 64 bytes and more: four moves at a time, then four that end at the last byte.
///
/// # Safety
/// As of [`copy`]; `len` is at least 64.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn lines(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the loop stops before the last 64 bytes, and the last moves are exactly these.
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
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            at = out(reg) _,
            last = out(reg) _,
            options(nostack)
        );
    }
}

/// Fewer than 64 bytes: words, then bytes.
///
/// # Safety
/// As of [`copy`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn few(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: words while eight bytes are left, then bytes while one is.
    unsafe {
        std::arch::asm!(
            "2:",
            "cmp {len}, 8",
            "jb 3f",
            "mov {word}, qword ptr [{src}]",
            "mov qword ptr [{dst}], {word}",
            "add {src}, 8",
            "add {dst}, 8",
            "sub {len}, 8",
            "jmp 2b",
            "3:",
            "test {len}, {len}",
            "jz 4f",
            "mov {byte}, byte ptr [{src}]",
            "mov byte ptr [{dst}], {byte}",
            "inc {src}",
            "inc {dst}",
            "dec {len}",
            "jmp 3b",
            "4:",
            len = inout(reg) len => _,
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            word = out(reg) _,
            byte = out(reg_byte) _,
            options(nostack)
        );
    }
}

/// Copies `len` bytes from `src` to `dst`; one of them may be shared.
///
/// # Safety
/// As on x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let mut at = 0_usize;
    while at < len {
        // SAFETY: at < len, and the caller vouches for both.
        unsafe { dst.add(at).write_volatile(src.add(at).read_volatile()) };
        at = at.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_short_length_and_some_long_ones_are_copied_and_nothing_else() {
        let from: Vec<u8> =
            (0..9000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in (0..300).chain([1023, 1024, 1025, 4095, 4096, 4097, 8999]) {
            for shift in [0, 1, 7] {
                let len = len.min(from.len() - shift);
                let mut to = vec![0xa5_u8; len + 32];
                // SAFETY: `to` has 16 bytes before and after; `from` has shift + len bytes.
                unsafe { super::copy(to.as_mut_ptr().add(16), from.as_ptr().add(shift), len) };
                assert_eq!(&to[16..16 + len], &from[shift..shift + len], "len {len}");
                assert!(to[..16].iter().chain(&to[16 + len..]).all(|&b| b == 0xa5), "len {len}");
            }
        }
    }
}
