//! Atomic operations on bytes: libfabric's data types and operations.
//!
//! The supported types are integers of 8 to 64 bits, `float` and `double`. Complex numbers, long
//! doubles and 128-bit integers are not supported, nor are bit operations on floating-point
//! numbers. Values are little-endian; integer sums and products wrap.
//!
//! The functions compute on a copy and access no shared memory: [`target`](super::target), which
//! performs all operations of its region, loads the values before and stores them after. So
//! operations on regions of one domain are atomic among themselves; memory that two domains
//! registered has no such guarantee. A call has at most [`INLINE_BYTES_MAX`] (4,096) bytes of
//! operands, compare values included. Unsupported combinations yield `None` or `false`, never a
//! panic.
//!
//! `shell::atomic` calls [`valid`] before an operation starts and to answer queries;
//! [`target`](super::target) calls [`apply`] under the lock of its domain.

use crate::abi::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_BAND, FI_BOR, FI_BXOR, FI_CSWAP, FI_CSWAP_GE, FI_CSWAP_GT,
    FI_CSWAP_LE, FI_CSWAP_LT, FI_CSWAP_NE, FI_DOUBLE, FI_FLOAT, FI_INT8, FI_INT16, FI_INT32,
    FI_INT64, FI_LAND, FI_LOR, FI_LXOR, FI_MAX, FI_MIN, FI_MSWAP, FI_PROD, FI_SUM, FI_UINT8,
    FI_UINT16, FI_UINT32, FI_UINT64,
};
use crate::limits::INLINE_BYTES_MAX;

/// The group of calls that an operation is allowed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicKind {
    /// `fi_atomic`.
    Write,
    /// `fi_fetch_atomic`.
    Fetch,
    /// `fi_compare_atomic`.
    Compare,
}

/// The parameters of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    /// libfabric's number of the data type.
    pub datatype: u8,
    /// libfabric's number of the operation.
    pub operation: u8,
    /// One operand for each element; empty for a read.
    pub operand: &'a [u8],
    /// One compare value for each element; empty for operations that do not compare.
    pub compare: &'a [u8],
}

/// Returns the size of a supported data type in bytes.
pub fn size(datatype: u32) -> Option<usize> {
    Some(match datatype {
        FI_INT8 | FI_UINT8 => 1,
        FI_INT16 | FI_UINT16 => 2,
        FI_INT32 | FI_UINT32 | FI_FLOAT => 4,
        FI_INT64 | FI_UINT64 | FI_DOUBLE => 8,
        _ => return None,
    })
}

/// Returns the maximum number of elements of a call, and the size of an element in bytes; `None` if
/// the operation is not supported.
pub fn valid(kind: AtomicKind, datatype: u32, operation: u32) -> Option<(usize, usize)> {
    let size = size(datatype)?;
    let float = matches!(datatype, FI_FLOAT | FI_DOUBLE);
    let of_bits = matches!(operation, FI_BOR | FI_BAND | FI_BXOR | FI_MSWAP);
    let right = match kind {
        AtomicKind::Write => operation <= FI_BXOR || operation == FI_ATOMIC_WRITE,
        AtomicKind::Fetch => operation <= FI_ATOMIC_WRITE,
        AtomicKind::Compare => (FI_CSWAP..=FI_MSWAP).contains(&operation),
    };
    let rows = if kind == AtomicKind::Compare { 2 } else { 1 };
    let count = INLINE_BYTES_MAX.checked_div(size.saturating_mul(rows))?;
    (right && !(float && of_bits)).then_some((count, size))
}

/// An element of a supported data type.
trait AtomicNumber: Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// Applies an operation on bits; any but the named ones swaps the bits in `mask` (`FI_MSWAP`).
    fn bits(self, other: Self, operation: u32, mask: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(impl AtomicNumber for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn bits(self, other: Self, operation: u32, mask: Self) -> Self {
                match operation {
                    FI_BOR => self | other,
                    FI_BAND => self & other,
                    FI_BXOR => self ^ other,
                    _ => other & mask | self & !mask,
                }
            }
        })*
    };
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! floats {
    ($($type:ty)*) => {
        $(impl AtomicNumber for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn sum(self, other: Self) -> Self {
                self + other
            }
            fn product(self, other: Self) -> Self {
                self * other
            }
            fn bits(self, _other: Self, _operation: u32, _mask: Self) -> Self {
                self
            }
        })*
    };
}

floats!(f32 f64);

/// Returns the new value of an element.
fn combine<T: AtomicNumber>(operation: u32, old: T, operand: T, compare: T) -> T {
    let truth = |whether| if whether { T::ONE } else { T::ZERO };
    let (a, b) = (old != T::ZERO, operand != T::ZERO);
    // The interface compares in this direction: the compare value, then the current value.
    let swap = |whether| if whether { operand } else { old };
    match operation {
        FI_MIN => swap(operand < old),
        FI_MAX => swap(operand > old),
        FI_SUM => old.sum(operand),
        FI_PROD => old.product(operand),
        FI_LOR => truth(a || b),
        FI_LAND => truth(a && b),
        FI_LXOR => truth(a != b),
        FI_ATOMIC_WRITE => operand,
        FI_CSWAP => swap(compare == old),
        FI_CSWAP_NE => swap(compare != old),
        FI_CSWAP_LE => swap(compare <= old),
        FI_CSWAP_LT => swap(compare < old),
        FI_CSWAP_GE => swap(compare >= old),
        FI_CSWAP_GT => swap(compare > old),
        FI_BOR | FI_BAND | FI_BXOR | FI_MSWAP => old.bits(operand, operation, compare),
        _ => old,
    }
}

macro_rules! row {
    ($type:ty, $operands:expr, $memory:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let read =
            |bytes: &[u8]| bytes.first_chunk::<SIZE>().map(|bytes| <$type>::from_le_bytes(*bytes));
        let operands = $operands.operand.chunks_exact(SIZE);
        let mut compares = $operands.compare.chunks_exact(SIZE);
        for (element, operand) in $memory.chunks_exact_mut(SIZE).zip(operands) {
            let compare = compares.next().and_then(read).unwrap_or(<$type as AtomicNumber>::ZERO);
            let (Some(old), Some(operand)) = (read(element), read(operand)) else { return false };
            let new = combine(u32::from($operands.operation), old, operand, compare);
            element.copy_from_slice(&new.to_le_bytes());
        }
    }};
}

/// Applies operands to a row of elements. Returns `false` if the operation is not supported or
/// lengths do not match.
pub fn apply(operands: &Operands<'_>, memory: &mut [u8]) -> bool {
    let (datatype, operation) = (u32::from(operands.datatype), u32::from(operands.operation));
    let kind = match operation {
        FI_CSWAP..=FI_MSWAP => AtomicKind::Compare,
        _ => AtomicKind::Fetch,
    };
    let compares = if kind == AtomicKind::Compare { memory.len() } else { 0 };
    let Some((_, size)) = valid(kind, datatype, operation) else { return false };
    if !memory.len().is_multiple_of(size) || operands.compare.len() != compares {
        return false;
    }
    if operation == FI_ATOMIC_READ {
        return true;
    }
    if operands.operand.len() != memory.len() {
        return false;
    }
    match datatype {
        FI_INT8 => row!(i8, operands, memory),
        FI_UINT8 => row!(u8, operands, memory),
        FI_INT16 => row!(i16, operands, memory),
        FI_UINT16 => row!(u16, operands, memory),
        FI_INT32 => row!(i32, operands, memory),
        FI_UINT32 => row!(u32, operands, memory),
        FI_INT64 => row!(i64, operands, memory),
        FI_UINT64 => row!(u64, operands, memory),
        FI_FLOAT => row!(f32, operands, memory),
        FI_DOUBLE => row!(f64, operands, memory),
        _ => return false,
    }
    true
}
