//! Counts words that hide the subject of a sentence, in comments and documents.
//!
//! CONTRIBUTING.md asks for subjects that are nouns of the code or of the field. Interrogative and
//! indefinite pronouns and verbs of speech stand where such a noun is missing. No word is forbidden:
//! the test compares the rate with that of other projects of this field.

/// Words that are counted, except `one`, which is mostly a numeral.
const VAGUE: &[&str] = &[
    "what", "whatever", "who", "whoever", "told", "tell", "tells", "say", "says", "said", "nobody",
    "somebody",
];

/// Words before `one` that make it a pronoun.
const BEFORE_ONE: &[&str] = &["the", "this", "that", "each", "no", "another"];

/// Words after `one` that make it a pronoun.
const AFTER_ONE: &[&str] = &["that", "which", "who", "whose", "is", "has", "does", "with"];

/// Occurrences in a text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub words: usize,
    pub vague: usize,
    /// Uses of `one` and `ones` as a pronoun.
    pub ones: usize,
}

impl Counts {
    /// Adds the words of a text; text between backquotes is code and does not count.
    pub fn add(&mut self, text: &str) {
        let text: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
        let is_word = |c: char| c.is_ascii_lowercase() || c == '\'';
        let words: Vec<&str> =
            text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
        self.words += words.len();
        self.vague += words.iter().filter(|word| VAGUE.contains(word)).count();
        for (at, word) in words.iter().enumerate() {
            let before = at.checked_sub(1).map_or("", |at| words[at]);
            let after = words.get(at + 1).copied().unwrap_or_default();
            let pronoun = BEFORE_ONE.contains(&before) || AFTER_ONE.contains(&after);
            self.ones += usize::from(*word == "ones" || *word == "one" && pronoun);
        }
    }

    /// Returns the faults of counts that exceed rates per 1,000 words, in tenths.
    pub fn faults(self, name: &str, vague_max: usize, ones_max: usize) -> Vec<String> {
        let tenths = |count: usize| count * 10_000 / self.words.max(1);
        [("vague words", self.vague, vague_max), ("pronouns `one`", self.ones, ones_max)]
            .into_iter()
            .filter(|(_, count, most)| tenths(*count) > *most)
            .map(|(what, count, most)| {
                let (rate, most) = (tenths(count), most);
                format!("{name}: {what}: {rate} tenths per 1,000 words, at most {most}")
            })
            .collect()
    }
}

#[test]
fn vague_words_are_counted_in_comments_outside_code() {
    let code = "//! Tells who waits, `what`.\nlet url = \"http://x\"; // The one that says no.\n";
    let mut counts = Counts::default();
    counts.add(&crate::source::comments(code));
    assert_eq!(counts, Counts { words: 8, vague: 3, ones: 1 });
    assert_eq!(counts.faults("a", 10_000, 10_000), Vec::<String>::new());
    assert_eq!(counts.faults("a", 10, 10).len(), 2);
}
