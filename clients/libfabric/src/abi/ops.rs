//! Tables of functions: their declaration, and entries for functions that the provider does not
//! implement.
//!
//! The other modules of [`super`] declare their tables by the macro `tables`. An entry that the
//! provider does not implement returns `-FI_ENOSYS`, or 0 or NULL where the result is no error
//! number; the application may call it in any thread, without effect. Each table has a constant
//! `NONE` with these entries only; `shell` replaces those that it implements, so that no entry is
//! ever NULL.

use std::ffi::c_char;

use super::errno::{FI_ENOSYS, failed_size};

/// The result of a function that is not implemented.
pub trait Absent {
    /// The value.
    const ABSENT: Self;
}

impl Absent for i32 {
    const ABSENT: Self = -FI_ENOSYS;
}

impl Absent for isize {
    const ABSENT: Self = failed_size(FI_ENOSYS);
}

impl Absent for u64 {
    const ABSENT: Self = 0;
}

impl Absent for *const c_char {
    const ABSENT: Self = std::ptr::null();
}

/// Declares tables. Each begins with its size, and has a `NONE` with functions that return
/// `-FI_ENOSYS`; a table with some functions is `Ops { some, ..Ops::NONE }`. No entry is NULL,
/// because callers check only entries that the interface declares optional.
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $table:ident { $($name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)* }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            #[repr(C)]
            pub struct $table {
                pub size: usize,
                $(pub $name: unsafe extern "C" fn($($arg: $type),*) -> $result,)*
            }

            impl $table {
                /// The table without implemented functions.
                pub const NONE: Self = {
                    $(
                        extern "C" fn $name($(_: $type),*) -> $result {
                            <$result as $crate::abi::ops::Absent>::ABSENT
                        }
                    )*
                    Self { size: size_of::<Self>(), $($name),* }
                };
            }
        )*
    };
}

pub(super) use tables;
