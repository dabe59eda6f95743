//! The macro that declares a struct and the fields of its table.
//!
//! Kinds of ports, links, groups, routes, rules, forwards and settings declare their keys by it,
//! each once; readers, help texts and printers use the fields ([`crate::schema`]). The macro checks
//! nothing at run time and declares no parser: [`check`](super::check()) and serde do. The order of
//! members is the order of printing. Two members with one key are not detected.

/// Declares a struct with its JSON form, and the [`Field`](crate::schema::Field)s of its table.
///
/// The documentation comment of a member is the help text of its key. Then follow `=>`, the
/// [`ValueType`](crate::schema::ValueType), the [`DefaultValue`](crate::schema::DefaultValue), and
/// methods of `Field` that add conditions. Members of type `Option` are left out of the JSON form
/// when they are `None`.
///
/// ```
/// use causeway_model::schema::{DefaultValue, ValueType, table};
///
/// table! {
///     /// A device that delays what it returns.
///     pub struct DelaySpec, pub const DELAY_FIELDS {
///         /// Time before a frame returns, in microseconds.
///         delay_us: u32 => ValueType::Integer { min: 0, max: 1000, unit: "US" },
///             DefaultValue::Number(0);
///     }
/// }
/// assert_eq!(DELAY_FIELDS[0].key, "delay_us");
/// assert_eq!(DELAY_FIELDS[0].help.trim(), "Time before a frame returns, in microseconds.");
/// ```
#[macro_export]
macro_rules! schema_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident, $fields_vis:vis const $fields:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])?
                $key:ident : $type:ty => $value:expr, $default:expr $(, .$method:ident($($arg:expr)?))*;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        $vis struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)*)])?
                pub $key: $type,
            )+
        }

        #[doc = concat!("The keys of the table of [`", stringify!($name), "`].")]
        $fields_vis const $fields: &[$crate::schema::Field] = &[
            $(
                $crate::schema::Field::new(
                    stringify!($key),
                    concat!($($doc),+),
                    $value,
                    $default,
                )$(.$method($($arg)?))*
            ),+
        ];
    };
}

pub use schema_table as table;
