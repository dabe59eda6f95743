//! The size of a guest's memory, as operators write it for QEMU: `2G`, `512M`, or MiB.
//!
//! A size is a whole number of MiB, from 1 MiB to [`MEMORY_MAX_MIB`] (16 TiB). Any other unit and
//! fractions are refused. The module does not know the memory of the host.
//!
//! `crate::args` parses `--memory`; [`super::Machine`] has the size, and the modules of the VMMs
//! print it. Without `--memory` the output has [`MemorySize::EXAMPLE`] (1 GiB) with a note, and
//! that of libvirt has no size.

use std::fmt;
use std::str::FromStr;

use causeway_model::limits::MEMORY_MAX_MIB;

/// A size of guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySize {
    mib: u32,
}

impl MemorySize {
    /// The size that is printed as an example: 1 GiB.
    pub const EXAMPLE: Self = Self { mib: 1024 };

    /// Returns the size in MiB.
    pub fn mib(self) -> u32 {
        self.mib
    }
}

impl FromStr for MemorySize {
    type Err = String;

    /// Parses a number with the unit M, G or T, each also as `MiB` and so on; MiB without a unit.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?}: expected 1M to {}T, as 2G or 512M", MEMORY_MAX_MIB / MIB_OF_TIB);
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = text.strip_prefix(digits).unwrap_or_default().to_ascii_lowercase();
        let factor: u32 = match unit.as_str() {
            "" | "m" | "mib" => 1,
            "g" | "gib" => MIB_OF_GIB,
            "t" | "tib" => MIB_OF_TIB,
            _ => return Err(wrong()),
        };
        // `u32::from_str` accepts a sign, which is no part of a size.
        let number = Some(digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let mib = number.and_then(|number| number.parse::<u32>().ok()?.checked_mul(factor));
        match mib {
            Some(mib) if (1..=MEMORY_MAX_MIB).contains(&mib) => Ok(Self { mib }),
            _ => Err(wrong()),
        }
    }
}

/// MiB of a GiB.
const MIB_OF_GIB: u32 = 1 << 10;
/// MiB of a TiB.
const MIB_OF_TIB: u32 = 1 << 20;

impl fmt::Display for MemorySize {
    /// Writes the form of QEMU's and Cloud Hypervisor's options: `2G` or `1536M`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mib.checked_rem(MIB_OF_GIB) {
            Some(0) => write!(f, "{}G", self.mib / MIB_OF_GIB),
            _ => write!(f, "{}M", self.mib),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes_are_read_printed_and_refused() {
        for (text, mib, shown) in [
            ("2G", 2048, "2G"),
            ("512M", 512, "512M"),
            ("1536MiB", 1536, "1536M"),
            ("2048", 2048, "2G"),
            ("1t", 1 << 20, "1024G"),
            ("16T", 1 << 24, "16384G"),
        ] {
            let size: MemorySize = text.parse().unwrap();
            assert_eq!((size.mib(), size.to_string().as_str()), (mib, shown), "{text}");
        }
        for bad in ["", "G", "0", "-1", "+1", "1.5G", "1K", "1 G", "17T", "99999999999G", "2GB"] {
            assert!(bad.parse::<MemorySize>().unwrap_err().contains("1M to 16T"), "{bad}");
        }
    }
}
