//! Lists of the keys with a prefix, at one revision, page by page.
//!
//! A page has at most [`PAGE_KEYS`] (512) keys, and as few as its reply of at most 16 MiB
//! ([`REPLY_BYTES_MAX`](crate::limits::REPLY_BYTES_MAX)) has room for: after a longer reply, fewer
//! keys are asked for, and later pages have more again. A value of the length that etcd permits by
//! default (1.5 MiB) therefore delays a list and does not fail it. In the list, a value that is
//! longer than each record is empty, and a key that is longer than each key of the schema is cut:
//! the replica refuses both. All keys and values have at most [`LIST_BYTES_MAX`] (128 MiB).
//!
//! The later pages are of the revision of the first. If etcd compacts that revision meanwhile, the
//! list fails, and the caller repeats it. Runs in the caller's thread.

use causeway_cluster::KeyEvent;
use causeway_cluster::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde_json::{Value, json};

use crate::client::{Etcd, EtcdError, Result, at, bytes, encoded, event_of, number, range_end};
use crate::limits::{ITEM_BYTES, LIST_BYTES_MAX, PAGE_KEYS};

/// The content of a prefix at one revision.
#[derive(Debug, Default)]
pub struct Listing {
    /// The keys with their values, by key.
    pub items: Vec<KeyEvent>,
    /// The revision.
    pub revision: u64,
    /// Number of the keys, as etcd counts them: what has not the form of etcd is not in `items`.
    pub keys: u64,
    /// Bytes of `items`.
    size: usize,
}

impl Listing {
    /// Adds a page, which is an answer of etcd to a request for a range. Returns the key with which
    /// the next page begins; `None` behind the last one.
    pub fn add(&mut self, answer: &Value) -> Option<Vec<u8>> {
        if self.revision == 0 {
            self.revision = number(at(answer, "/header/revision"));
            self.keys = number(at(answer, "/count"));
        }
        let page = at(answer, "/kvs").as_array().map(Vec::as_slice).unwrap_or_default();
        for item in page.iter().filter_map(event_of).map(shortened) {
            let value = item.value.as_ref().map_or(0, Vec::len);
            let size = item.key.len().saturating_add(value).saturating_add(ITEM_BYTES);
            self.size = self.size.saturating_add(size);
            self.items.push(item);
        }
        let mut last = bytes(at(page.last()?, "/key"))?;
        // The next key in the order of bytes.
        last.push(0);
        Some(last).filter(|_| at(answer, "/more").as_bool() == Some(true))
    }
}

/// Returns an item without what is longer than in each record.
fn shortened(mut item: KeyEvent) -> KeyEvent {
    item.key.truncate(KEY_BYTES_MAX.saturating_add(1));
    item.key.shrink_to_fit();
    if item.value.as_ref().is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
        item.value = Some(Vec::new());
    }
    item
}

impl Etcd {
    /// Lists all keys with a prefix.
    ///
    /// # Errors
    /// etcd does not answer or refuses, a key with its value is longer than
    /// [`REPLY_BYTES_MAX`](crate::limits::REPLY_BYTES_MAX) (16 MiB), or all are longer than
    /// [`LIST_BYTES_MAX`] (128 MiB).
    pub fn list(&mut self, prefix: &str) -> Result<Listing> {
        let (mut all, mut most) = (Listing::default(), PAGE_KEYS);
        let mut from = prefix.as_bytes().to_vec();
        loop {
            let range = json!({
                "key": encoded(&from), "range_end": range_end(prefix),
                "limit": most.to_string(), "revision": all.revision.to_string(),
            });
            let answer = match self.call("/v3/kv/range", &range) {
                Err(error) if error.is_long_reply() && most > 1 => {
                    most = (most / 4).max(1);
                    continue;
                }
                answer => answer?,
            };
            let next = all.add(&answer);
            if all.size > LIST_BYTES_MAX {
                return Err(EtcdError::LongList(prefix.into()));
            }
            match next {
                None => return Ok(all),
                Some(next) if next > from => from = next,
                Some(_) => return Err(EtcdError::PageOrder),
            }
            most = most.saturating_mul(2).min(PAGE_KEYS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_list_are_joined_and_junk_is_cut() {
        let mut all = Listing::default();
        let long = encoded([7; VALUE_BYTES_MAX + 1]);
        let first = json!({
            "header": { "revision": "9" }, "count": "3", "more": true,
            "kvs": [
                { "key": encoded("/a/1"), "value": encoded("x"), "mod_revision": "4" },
                { "key": encoded("/a/2"), "value": long, "mod_revision": "5" },
            ],
        });
        assert_eq!(all.add(&first), Some(b"/a/2\0".to_vec()));
        let key = "/".repeat(100_000);
        let second = json!({
            "header": { "revision": "12" }, "count": "1",
            "kvs": [{ "key": encoded(&key), "mod_revision": "6" }],
        });
        assert_eq!(all.add(&second), None);
        assert_eq!((all.revision, all.keys), (9, 3));
        let values: Vec<_> = all.items.iter().map(|item| item.value.clone().unwrap()).collect();
        assert_eq!(values, [b"x".to_vec(), Vec::new(), Vec::new()]);
        assert_eq!(all.items[2].key.len(), KEY_BYTES_MAX + 1);
        assert_eq!(all.size, 9 + KEY_BYTES_MAX + 1 + 3 * ITEM_BYTES);
        // A page without keys ends the list, whatever the answer says.
        assert_eq!(all.add(&json!({ "more": true })), None);
    }
}
