//! Traces: questions about the destination of traffic, which are answered without sending any.
//!
//! A service defines a type for each question that it answers ([`TraceRequest`]) and registers a
//! [`TraceDefinition`] of the type. The control plane carries a [`TraceQuery`]: the type's name and
//! values. The fabric finds the service by the name, checks that the named ports and group exist,
//! and asks the group's shard, in the thread of the request. [`crate::commands::trace`] has the
//! questions that the command line knows; others reach the daemon by `POST /v1/trace`.
//!
//! A query is not checked until it is read as its type: values that do not fit, and the name of no
//! registered type, are refused as invalid. Unknown values are ignored.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{CommandError, Name};

/// A question about the destination of traffic.
pub trait TraceRequest: Serialize + DeserializeOwned {
    /// Unique name of the type: the value of the field `what`.
    const WHAT: &'static str;

    /// Returns the objects that must exist, and that select the shard that answers.
    fn scope(&self) -> TraceScope;
}

/// The objects that a question names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceScope {
    /// The sending port; its group answers.
    pub from: Option<Name>,
    /// The receiving port, of any group.
    pub to: Option<Name>,
    /// The group that answers a question without a sending port.
    pub group: Option<Name>,
}

/// A [`TraceRequest`] of any type, erased.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TraceQuery {
    what: String,
    #[serde(flatten)]
    values: Map<String, Value>,
}

impl TraceQuery {
    /// Erases the type of `request`.
    pub fn new<T: TraceRequest>(request: &T) -> Self {
        let values = match serde_json::to_value(request) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        Self { what: T::WHAT.to_owned(), values }
    }

    /// Returns the name of the type.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the question as a `T`, or `None` if it is of another type. The error of values that
    /// do not fit is [`CommandError::Invalid`].
    pub fn get<T: TraceRequest>(&self) -> Option<Result<T, CommandError>> {
        (self.what == T::WHAT).then(|| self.read())
    }

    /// Reads the values as a `T`.
    fn read<T: TraceRequest>(&self) -> Result<T, CommandError> {
        let values = Value::Object(self.values.clone());
        serde_json::from_value(values)
            .map_err(|error| CommandError::Invalid(format!("trace of a {}: {error}", T::WHAT)))
    }
}

/// The registration of a type of questions.
#[derive(Debug, Clone, Copy)]
pub struct TraceDefinition {
    /// Name of the type.
    pub what: &'static str,
    read_scope: fn(&TraceQuery) -> Result<TraceScope, CommandError>,
}

impl TraceDefinition {
    /// Defines the type `T`.
    pub const fn new<T: TraceRequest>() -> Self {
        Self { what: T::WHAT, read_scope: |query| query.read::<T>().map(|request| request.scope()) }
    }

    /// Returns the objects that a query of this type names.
    ///
    /// # Errors
    /// The values do not fit the type.
    pub fn scope(&self, query: &TraceQuery) -> Result<TraceScope, CommandError> {
        (self.read_scope)(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Echo {
        from: Name,
        size: u16,
    }

    impl TraceRequest for Echo {
        const WHAT: &'static str = "echo";

        fn scope(&self) -> TraceScope {
            TraceScope { from: Some(self.from.clone()), ..TraceScope::default() }
        }
    }

    #[test]
    fn trace_query_keeps_the_values_of_its_type() {
        let echo = Echo { from: "a".parse().unwrap(), size: 7 };
        let text = serde_json::to_string(&TraceQuery::new(&echo)).unwrap();
        assert_eq!(text, r#"{"what":"echo","from":"a","size":7}"#);
        let query: TraceQuery = serde_json::from_str(&text).unwrap();
        assert_eq!(query.get::<Echo>().unwrap().unwrap(), echo);
        assert!(query.get::<crate::commands::trace::Frame>().is_none());
        let definition = TraceDefinition::new::<Echo>();
        assert_eq!(definition.scope(&query).unwrap(), echo.scope());
    }

    #[test]
    fn trace_values_that_do_not_fit_are_refused_with_the_type() {
        let text = r#"{"what":"echo","from":"a","size":-1}"#;
        let query: TraceQuery = serde_json::from_str(text).unwrap();
        let refused = TraceDefinition::new::<Echo>().scope(&query).unwrap_err().to_string();
        assert!(refused.starts_with("trace of a echo: invalid value"), "{refused}");
    }
}
