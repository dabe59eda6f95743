//! Lists of the keys with a prefix, at one revision, page by page.
//!
//! A page has at most [`PAGE_KEYS`] (512) keys, and as few as its reply of at most 16 MiB
//! ([`REPLY_BYTES_MAX`](crate::limits::REPLY_BYTES_MAX)) has room for: after a longer reply, fewer
//! keys are asked for, and later pages have more again. A value of the length that etcd permits by
//! default (1.5 MiB) therefore delays a list by its transfer. In the list, a value that is
//! longer than each record is empty, and a key that is longer than each key of the schema is cut:
//! the replica refuses both. All keys and values have at most [`LIST_BYTES_MAX`] (128 MiB). After a
//! page that does not come in time, the pages have at most [`SLOW_PAGE_KEYS`] (32) keys; a second
//! such page fails the list, and so does an etcd that needs more than [`LIST_TIME_MAX`] (60 s).
//!
//! The later pages are of the revision of the first. If etcd compacts that revision meanwhile, the
//! list fails, and the caller repeats it. Runs in the caller's thread.

use std::time::Instant;

use causeway_cluster::KeyEvent;
use causeway_cluster::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde_json::{Value, json};

use crate::client::{Etcd, EtcdError, Result, at, bytes, encoded, event_of, number, range_end};
use crate::limits::{ITEM_BYTES, LIST_BYTES_MAX, LIST_TIME_MAX, PAGE_KEYS, SLOW_PAGE_KEYS};

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
    /// [`LIST_BYTES_MAX`] (128 MiB), or the list takes longer than [`LIST_TIME_MAX`] (60 s).
    pub fn list(&mut self, prefix: &str) -> Result<Listing> {
        let (mut all, mut most, mut longest) = (Listing::default(), PAGE_KEYS, PAGE_KEYS);
        let (mut from, begun) = (prefix.as_bytes().to_vec(), Instant::now());
        loop {
            if begun.elapsed() >= LIST_TIME_MAX {
                return Err(EtcdError::SlowList(prefix.into()));
            }
            let range = json!({
                "key": encoded(&from), "range_end": range_end(prefix),
                "limit": most.to_string(), "revision": all.revision.to_string(),
            });
            let answer = match self.call("/v3/kv/range", &range) {
                Err(error) if error.is_long_reply() && most > 1 => {
                    most = (most / 4).max(1);
                    continue;
                }
                Err(error) if longest > SLOW_PAGE_KEYS && self.is_slow(&error) => {
                    longest = SLOW_PAGE_KEYS;
                    most = most.min(longest);
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
            most = most.saturating_mul(2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Security;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// Answers requests for pages of at most [`SLOW_PAGE_KEYS`] keys, and no others.
    fn serve_short_pages(listener: &TcpListener) {
        let (mut silent, mut pages) = (Vec::new(), 0);
        while pages < 2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let len = stream.read(&mut request).unwrap();
            let text = String::from_utf8_lossy(&request[..len]);
            if !text.contains(&format!("\"limit\":\"{SLOW_PAGE_KEYS}\"")) {
                silent.push(stream);
                continue;
            }
            let kvs = [json!({ "key": encoded(format!("/a/{pages}")), "value": encoded("x") })];
            let more = pages == 0;
            let page =
                json!({ "header": { "revision": "9" }, "count": "2", "more": more, "kvs": kvs });
            let (page, close) = (page.to_string(), "Connection: close");
            let head =
                format!("HTTP/1.1 200 OK\r\n{close}\r\nContent-Length: {}\r\n\r\n", page.len());
            stream.write_all((head + &page).as_bytes()).unwrap();
            pages += 1;
        }
    }

    #[test]
    fn list_of_a_slow_etcd_has_short_pages() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let server = std::thread::spawn(move || serve_short_pages(&listener));
        let all = Etcd::new(vec![at], Security::default(), None).list("/a/").unwrap();
        assert_eq!((all.items.len(), all.keys), (2, 2));
        server.join().unwrap();
    }

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
