//! Suggestions for misspelt keys and names.
//!
//! [`check`](super::check()) and the reader of the configuration file call [`nearest`] for an
//! unknown word and show the result as a question; nothing is corrected by itself. Both run in
//! `causewayd`, in the thread that reads a request of the control API or the file. The unknown word
//! is compared in lower case; candidates are compared as they are, so that a capital letter of a
//! name is an edit. Only the first 64 characters of both are compared. The cost grows with the
//! number of candidates and the product of the lengths, so callers pass lists that are bounded.

/// Returns the candidate with the smallest edit distance to `word`: of several, the first in the
/// order of bytes. Returns `None` if all are further than one edit plus one for each four bytes of
/// the candidate, rounded down: 2 edits for a candidate of 4 to 7 bytes.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (distance(&word, c), c))
        .filter(|(d, c)| *d <= 1 + c.len() / 4)
        .min()
        .map(|(_, c)| c)
}

/// Counts the edits (insert, delete, replace, swap of neighbours) between two short words.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = usize::from(a[i - 1] != b[j - 1]);
                let mut best =
                    (rows[i - 1][j - 1] + changed).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_key_is_found_and_far_keys_are_not() {
        let keys = ["name", "group", "queue_pairs", "mac"];
        assert_eq!(nearest("queue_pair", keys), Some("queue_pairs"));
        assert_eq!(nearest("nmae", keys), Some("name"));
        assert_eq!(nearest("Mac", keys), Some("mac"));
        assert_eq!(nearest("colour", keys), None);
    }
}
