//! Bit fields of the device's formats: the base of the modules of [`super`].
//!
//! All fields are big-endian. [`at`] names a field as the documents of the format do: byte offset,
//! bit offset counted from that byte's most significant bit, and width. `layout!` makes a structure
//! from a table of fields: `parse` reads all of them, `emit` writes all of them and leaves the
//! other bits of the bytes as they are. A place that no load can reach (a field across two 32-bit
//! words) fails to compile. Values are not checked here; `emit` stores the low bits of a value that
//! is too wide. The only error is [`crate::Truncated`], if the bytes are fewer than the structure's
//! length.
//!
//! `codes!` makes an enumeration of a field's values. Structures hold the number, so that `parse`
//! accepts every code; users convert it by `from_raw`, which returns `None` for an unknown code.

/// The place of a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Offset of the first byte.
    byte: usize,
    /// Offset of the 32-bit word that contains the field, if the field is not wider.
    word: usize,
    /// Distance between the field's and the word's least significant bits.
    shift: u32,
    /// Width, in bits.
    width: usize,
}

/// Returns the place of a field of `width` bits that begins `bit` bits after the most significant
/// bit of byte `byte`.
#[allow(clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
pub(super) const fn at(byte: usize, bit: usize, width: usize) -> Place {
    if width > 32 {
        assert!(bit == 0 && width.is_multiple_of(8), "a wide field consists of bytes");
        return Place { byte, word: byte, shift: 0, width };
    }
    let start = byte * 8 + bit;
    let end = start % 32 + width;
    assert!(bit < 8 && width > 0 && end <= 32, "a field is in one 32-bit word");
    Place { byte, word: start / 32 * 4, shift: (32 - end) as u32, width }
}

impl Place {
    /// Returns the width, in bits.
    #[cfg(test)]
    pub(super) const fn width(self) -> usize {
        self.width
    }

    /// Returns the field's bits, at the least significant end.
    #[inline]
    const fn mask(self) -> u32 {
        match 1_u32.checked_shl(self.width as u32) {
            Some(bit) => bit.wrapping_sub(1),
            None => u32::MAX,
        }
    }

    #[inline]
    fn load(self, bytes: &[u8]) -> u32 {
        let word = bytes.get(self.word..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_be_bytes(*word).wrapping_shr(self.shift) & self.mask())
    }

    #[inline]
    fn store(self, bytes: &mut [u8], value: u32) {
        if let Some(word) = bytes.get_mut(self.word..).and_then(|rest| rest.first_chunk_mut()) {
            let others = u32::from_be_bytes(*word) & !self.mask().wrapping_shl(self.shift);
            *word = (others | (value & self.mask()).wrapping_shl(self.shift)).to_be_bytes();
        }
    }

    #[inline]
    fn load_bytes<const N: usize>(self, bytes: &[u8]) -> [u8; N] {
        bytes.get(self.byte..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    #[inline]
    fn store_bytes<const N: usize>(self, bytes: &mut [u8], value: &[u8; N]) {
        if let Some(place) = bytes.get_mut(self.byte..).and_then(|rest| rest.first_chunk_mut()) {
            *place = *value;
        }
    }

    /// Returns the bytes from the field on.
    #[inline]
    pub(super) fn tail(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.byte..).unwrap_or(&[])
    }

    /// Returns the bytes from the field on.
    #[inline]
    pub(super) fn tail_mut(self, bytes: &mut [u8]) -> &mut [u8] {
        bytes.get_mut(self.byte..).unwrap_or(&mut [])
    }
}

/// The type of a field. Beyond the end of the bytes, loads yield zero and stores have no effect.
pub(super) trait Value: Sized {
    /// Sum of the widths of the fields inside of the value, if it has fields.
    #[cfg(test)]
    const BITS: Option<usize> = None;

    /// Reads the field.
    fn load(bytes: &[u8], place: Place) -> Self;
    /// Writes the field.
    fn store(&self, bytes: &mut [u8], place: Place);
}

impl Value for bool {
    #[inline]
    fn load(bytes: &[u8], place: Place) -> Self {
        place.load(bytes) != 0
    }

    #[inline]
    fn store(&self, bytes: &mut [u8], place: Place) {
        place.store(bytes, u32::from(*self));
    }
}

impl Value for u8 {
    #[inline]
    fn load(bytes: &[u8], place: Place) -> Self {
        place.load(bytes) as u8
    }

    #[inline]
    fn store(&self, bytes: &mut [u8], place: Place) {
        place.store(bytes, u32::from(*self));
    }
}

impl Value for u16 {
    #[inline]
    fn load(bytes: &[u8], place: Place) -> Self {
        place.load(bytes) as u16
    }

    #[inline]
    fn store(&self, bytes: &mut [u8], place: Place) {
        place.store(bytes, u32::from(*self));
    }
}

impl Value for u32 {
    #[inline]
    fn load(bytes: &[u8], place: Place) -> Self {
        place.load(bytes)
    }

    #[inline]
    fn store(&self, bytes: &mut [u8], place: Place) {
        place.store(bytes, *self);
    }
}

impl Value for u64 {
    #[inline]
    fn load(bytes: &[u8], place: Place) -> Self {
        Self::from_be_bytes(place.load_bytes(bytes))
    }

    #[inline]
    fn store(&self, bytes: &mut [u8], place: Place) {
        place.store_bytes(bytes, &self.to_be_bytes());
    }
}

impl<const N: usize> Value for [u8; N] {
    #[inline]
    fn load(bytes: &[u8], place: Place) -> Self {
        place.load_bytes(bytes)
    }

    #[inline]
    fn store(&self, bytes: &mut [u8], place: Place) {
        place.store_bytes(bytes, self);
    }
}

/// Declares a structure whose fields have places in bytes. After the name stand the format's name
/// for errors and its length in bytes.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($what:literal, $len:expr) {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $place:expr,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Length of the format, in bytes.
            pub const LEN: usize = $len;

            /// Reads the fields from the first [`Self::LEN`] bytes. Reserved bits are ignored.
            ///
            /// # Errors
            /// [`crate::Truncated`] if there are fewer bytes.
            #[inline]
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::Truncated> {
                let Some(bytes) = bytes.first_chunk::<{ $len }>() else {
                    return Err($crate::Truncated { what: $what, need: $len, have: bytes.len() });
                };
                Ok(Self {
                    $($field: $crate::mlx5::field::Value::load(bytes, const { $place }),)*
                })
            }

            /// Writes the fields to the first [`Self::LEN`] bytes and leaves reserved bits as they
            /// are. A value that is too wide for its field loses its upper bits.
            ///
            /// # Errors
            /// [`crate::Truncated`] if there are fewer bytes.
            #[inline]
            pub fn emit(&self, bytes: &mut [u8]) -> Result<(), $crate::Truncated> {
                let have = bytes.len();
                let Some(bytes) = bytes.first_chunk_mut::<{ $len }>() else {
                    return Err($crate::Truncated { what: $what, need: $len, have });
                };
                $($crate::mlx5::field::Value::store(&self.$field, bytes, const { $place });)*
                Ok(())
            }

            /// Returns the format's bytes, with reserved bits zero.
            #[inline]
            pub fn to_bytes(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                $($crate::mlx5::field::Value::store(&self.$field, &mut bytes, const { $place });)*
                bytes
            }

            /// Sum of the widths of all fields, in bits.
            #[cfg(test)]
            pub(super) const BITS: usize = 0 $(+ match <$type as $crate::mlx5::field::Value>::BITS {
                Some(bits) => bits,
                None => $place.width(),
            })*;
        }

        impl $crate::mlx5::field::Value for $name {
            #[cfg(test)]
            const BITS: Option<usize> = Some(Self::BITS);

            #[inline]
            fn load(bytes: &[u8], place: $crate::mlx5::field::Place) -> Self {
                Self::parse(place.tail(bytes)).unwrap_or_default()
            }

            #[inline]
            fn store(&self, bytes: &mut [u8], place: $crate::mlx5::field::Place) {
                // A structure inside of another always fits: its place is part of the layout.
                let _ = self.emit(place.tail_mut(bytes));
            }
        }
    };
}

/// Declares an enumeration of codes, with conversions in both directions and a name for each code.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $raw:ty {
            $($(#[$code_meta:meta])* $code:ident = $value:literal $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr($raw)]
        pub enum $name {
            $($(#[$code_meta])* $code = $value,)*
        }

        impl $name {
            /// All codes, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// Returns the value with code `raw`, or `None` if the code is not known.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Option<Self> {
                match raw {
                    $($value => Some(Self::$code),)*
                    _ => None,
                }
            }

            /// Returns the code.
            #[inline]
            pub const fn raw(self) -> $raw {
                self as $raw
            }

            /// Returns the name, for log lines.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(super) use {codes, layout};
