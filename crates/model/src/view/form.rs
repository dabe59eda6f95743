//! The forms of a view: typed in the daemon, textual in tools.
//!
//! The types of views ([`crate::view`]) are generic over [`ViewForm`]; the daemon serializes them
//! as [`Typed`], and `causeway` deserializes the same JSON as [`Textual`]. A textual view accepts
//! unknown kinds, states and keys, and keeps the keys in [`SpecValues`] without checks. A field
//! that the daemon does not send is a default if its type declares one, and otherwise an error of
//! the reader. The module converts no form into the other. It runs in the thread that writes or
//! reads a reply: that of a connection in the daemon, and of the command or page in a tool.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A value that a view contains.
pub trait ViewValue: Debug + Clone + Serialize {}
impl<T: Debug + Clone + Serialize> ViewValue for T {}

/// A value of a view whose JSON form is a text.
pub trait ViewText: ViewValue + DeserializeOwned {}
impl<T: ViewValue + DeserializeOwned> ViewText for T {}

/// The form in which a view holds configurations and texts. Both forms have the same JSON.
pub trait ViewForm: Debug + Clone {
    /// A configuration.
    type Spec<T: ViewValue>: ViewValue;
    /// A value with a text form, such as a name, an address or a state.
    type Text<T: ViewText>: ViewText;

    /// Returns the value of a field that an older daemon omits.
    fn missing<T: ViewText + Default>() -> Self::Text<T>;
}

/// The form of the daemon, which writes views: each value has its own type.
#[derive(Debug, Clone)]
pub enum Typed {}

impl ViewForm for Typed {
    type Spec<T: ViewValue> = T;
    type Text<T: ViewText> = T;

    fn missing<T: ViewText + Default>() -> T {
        T::default()
    }
}

/// The form of tools, which read views and show them. A tool can be older than the daemon, so a
/// configuration is a table and each text is a `String`: kinds, states and keys that this release
/// does not know are read as well.
#[derive(Debug, Clone)]
pub enum Textual {}

impl ViewForm for Textual {
    type Spec<T: ViewValue> = SpecValues;
    type Text<T: ViewText> = String;

    fn missing<T: ViewText + Default>() -> String {
        String::new()
    }
}

/// A configuration as values by key, and the fields of a view that this release does not know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpecValues(pub Map<String, Value>);

impl SpecValues {
    /// Returns a text; `None` if the key is missing or its value is not a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// Returns a number; `None` if the key is missing or its value is not a number of 32 bits.
    pub fn number(&self, key: &str) -> Option<u32> {
        self.0.get(key)?.as_u64()?.try_into().ok()
    }
}
