//! A value of the configuration file with the positions of the keys that it was read from.
//!
//! `config::table` makes the values; `config::check` and `config::sections` report problems at their
//! positions. Positions are byte ranges of the text of the file; a key that is not given has that of its
//! table. The module neither reads nor checks anything.

use std::ops::Range;

/// A value with the positions of the keys that it was read from.
#[derive(Debug, Clone)]
pub struct FileValue<T> {
    /// The value.
    pub value: T,
    /// Byte range of each key's value in the file.
    pub spans: Vec<(String, Range<usize>)>,
    /// Byte range of the table.
    pub whole: Range<usize>,
}

impl<T> FileValue<T> {
    /// Returns the byte range of `key`, or of the table if the key is not given.
    pub fn span(&self, key: &str) -> Range<usize> {
        let at = self.spans.iter().find(|(k, _)| k == key);
        at.map_or_else(|| self.whole.clone(), |(_, span)| span.clone())
    }
}
