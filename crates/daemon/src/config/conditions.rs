//! Conditions that the tables of every section have to meet: their number, values that only one of them
//! may have, and groups that the file defines. [`super::check`] and [`super::sections`] check them.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use causeway_model::schema::nearest;

use super::file_value::FileValue;
use super::problem::{Problems, line_of};

/// Reports the first table beyond `max`.
pub fn too_many<T>(title: &str, list: &[FileValue<T>], max: usize, problems: &mut Problems) {
    if let Some(first_over) = list.get(max) {
        let (whole, n) = (first_over.whole.clone(), list.len());
        problems.add(whole, format!("{n} tables {title}: expected at most {max}"));
    }
}

/// Reports a group that is not defined.
pub fn known_group(
    group: &str,
    span: Range<usize>,
    key: &str,
    defined: &[&str],
    problems: &mut Problems,
) {
    if defined.contains(&group) {
        return;
    }
    let hint = match nearest(group, defined.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("add [[group]] name = \"{group}\""),
    };
    problems.add(span, format!("key {key:?}: group {group} is not defined; {hint}"));
}

/// Values that must be unique, with the position of their first occurrence.
pub struct UniqueValues<'s, T> {
    /// Text of the file, for line numbers.
    source: &'s str,
    /// Position of the first occurrence of each value.
    at: HashMap<T, Range<usize>>,
}

impl<'s, T: Eq + Hash + Clone> UniqueValues<'s, T> {
    /// Has no value of the text `source` yet.
    pub fn new(source: &'s str) -> Self {
        Self { source, at: HashMap::new() }
    }

    /// Adds a value; reports a value that was added before, with its line.
    pub fn insert(
        &mut self,
        key: &str,
        value: &T,
        span: Range<usize>,
        problems: &mut Problems,
        shown: impl Fn(&T) -> String,
    ) {
        match self.at.get(value) {
            None => {
                self.at.insert(value.clone(), span);
            }
            Some(first) => {
                let (line, what) = (line_of(self.source, first.start), shown(value));
                let here = line_of(self.source, span.start);
                let text = format!(
                    "key {key:?}: {what} on line {here} is already defined on line {line}: \
                     expected a different one"
                );
                problems.add(span, text);
            }
        }
    }
}
