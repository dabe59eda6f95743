//! Suggestions for misspelt keys and names.
//!
//! [`check`](super::check()) and the reader of the configuration file call [`nearest`] for an
//! unknown word and show the result as a question; nothing is corrected by itself. Words are
//! compared in lower case, and by their first 64 characters. The cost grows with the product of the
//! lengths, so callers pass short lists of short words.

/// Returns the candidate with the smallest edit distance to `word`, or `None` if all are further
/// than one edit plus one for each four letters.
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
