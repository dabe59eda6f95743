//! The forms in which an attachment is printed: for people, for scripts, and as JSON.
//!
//! An [`Attachment`] has arguments of a program, elements of libvirt's XML, calls of a C library,
//! or commands of a shell. For people, arguments are quoted for a POSIX shell and continued over
//! lines, and notes are comments in the syntax of the rest. [`Attachment::lines`] has a line for
//! each word of the arguments (an option is a word, and so is each of its values), or for each call
//! or command, for `mapfile` and the like; words are without quotes there. The JSON form has all
//! parts in lists, arguments as a list of words, and is a contract with scripts; texts of notes are
//! not.
//!
//! The modules of the VMMs make attachments; `commands::vm` prints one form of each, in the main
//! thread of the tool. With `--lines` it prints the notes on stderr, because the lines have no
//! comments; XML, and a line feed in a word, a call or a command, are an error then. This module
//! returns texts and prints nothing, and the forms do not change an attachment. It quotes arguments
//! for a shell, and texts for XML comments; all other quoting is that of the modules of the VMMs
//! (`vmm::quote`).

use serde_json::{Value, json};

use super::quote::{shell, xml_comment};

/// Longest line of a note in a comment, in characters, without the start of the comment.
const NOTE_WIDTH: usize = 96;

/// The options that attach a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the VMM.
    pub vmm: &'static str,
    /// Version of QEMU, if it is known and matters.
    pub version: Option<String>,
    /// Assumptions and conditions, a sentence or two each.
    pub notes: Vec<String>,
    /// The options.
    pub parts: Parts,
}

/// Options in the form that a VMM reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parts {
    /// Arguments of a program.
    Arguments(Vec<Argument>),
    /// Elements of a libvirt domain.
    Elements(Vec<Element>),
    /// Statements in C.
    Calls(Vec<String>),
    /// Commands of a shell, already quoted.
    Commands(Vec<String>),
}

/// An option of a program with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Name of the option, with its hyphens.
    pub option: &'static str,
    /// The values, without quotes.
    pub values: Vec<String>,
}

impl Argument {
    /// Returns an option with one value.
    pub fn new(option: &'static str, value: impl Into<String>) -> Self {
        Self { option, values: vec![value.into()] }
    }

    /// Returns the option, and then its values.
    fn words(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.option).chain(self.values.iter().map(String::as_str))
    }
}

/// An element of libvirt's XML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The element that contains it, as a path: `domain` or `domain/devices`.
    pub parent: &'static str,
    /// A condition under which the element replaces or follows the others; it is commented out.
    pub condition: Option<String>,
    /// The element, with a line feed at its end.
    pub xml: String,
}

impl Attachment {
    /// Returns the text for people.
    pub fn text(&self) -> String {
        match &self.parts {
            Parts::Arguments(all) => {
                let lines = all
                    .iter()
                    .map(|argument| argument.words().map(shell).collect::<Vec<_>>().join(" "));
                let lines = lines.collect::<Vec<_>>().join(" \\\n");
                format!("{}{lines}\n", comments(&self.notes, "# "))
            }
            Parts::Calls(calls) => {
                format!("{}{}\n", comments(&self.notes, "// "), calls.join("\n"))
            }
            Parts::Commands(commands) => {
                format!("{}{}\n", comments(&self.notes, "# "), commands.join("\n"))
            }
            Parts::Elements(elements) => {
                let notes = self.notes.iter().map(|note| {
                    let lines = wrapped(&xml_comment(note), NOTE_WIDTH).join("\n     ");
                    format!("<!-- {lines} -->\n")
                });
                notes.chain(elements.iter().map(element_text)).collect()
            }
        }
    }

    /// Returns a line for each word of the arguments, or for each call or command; `None` for XML,
    /// and if a word, a call or a command has a line feed.
    pub fn lines(&self) -> Option<String> {
        let words: Vec<&str> = match &self.parts {
            Parts::Arguments(all) => all.iter().flat_map(Argument::words).collect(),
            Parts::Calls(all) | Parts::Commands(all) => all.iter().map(String::as_str).collect(),
            Parts::Elements(_) => return None,
        };
        let is_one_line = words.iter().all(|word| !word.contains('\n'));
        is_one_line.then(|| words.iter().map(|word| format!("{word}\n")).collect())
    }

    /// Returns the JSON form.
    pub fn json(&self) -> Value {
        let (key, parts): (_, Value) = match &self.parts {
            Parts::Arguments(all) => ("arguments", all.iter().flat_map(Argument::words).collect()),
            Parts::Calls(calls) => ("calls", json!(calls)),
            Parts::Commands(commands) => ("commands", json!(commands)),
            Parts::Elements(elements) => ("elements", elements.iter().map(element_json).collect()),
        };
        let mut value = json!({ "vmm": self.vmm, "notes": self.notes });
        if let Some(map) = value.as_object_mut() {
            map.extend(self.version.clone().map(|text| ("version".to_owned(), text.into())));
            map.insert(key.to_owned(), parts);
        }
        value
    }
}

/// Attribute of `<domain>` that enables elements of the QEMU namespace.
const NAMESPACE: &str = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'";

/// Returns an element with a comment that names its place.
fn element_text(element: &Element) -> String {
    let place = match element.parent {
        "domain/devices" => "inside <devices>".to_owned(),
        _ if element.xml.starts_with("<qemu:") => {
            format!("inside <domain {NAMESPACE}>, at its end")
        }
        _ => "inside <domain>".to_owned(),
    };
    match &element.condition {
        None => format!("<!-- {place} -->\n{}", element.xml),
        Some(condition) => {
            let lines = wrapped(&xml_comment(&format!("{condition}, {place}:")), NOTE_WIDTH);
            format!("<!-- {}\n{}-->\n", lines.join("\n     "), xml_comment(&element.xml))
        }
    }
}

fn element_json(element: &Element) -> Value {
    let mut value = json!({ "parent": element.parent, "xml": element.xml });
    if let Some(map) = value.as_object_mut() {
        let condition = element.condition.clone();
        map.extend(condition.map(|text| ("condition".to_owned(), text.into())));
        if element.xml.starts_with("<qemu:") {
            map.insert("namespace".to_owned(), NAMESPACE.into());
        }
    }
    value
}

/// Returns notes as comment lines.
fn comments(notes: &[String], start: &str) -> String {
    let lines = notes.iter().flat_map(|note| wrapped(note, NOTE_WIDTH));
    lines.map(|line| format!("{start}{line}\n")).collect()
}

/// Breaks a text at blanks into lines of at most `width` characters; longer words stay whole.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: Parts) -> Attachment {
        Attachment { vmm: "qemu", version: None, notes: vec!["a note".into()], parts }
    }

    #[test]
    fn attach_forms_have_the_same_words() {
        let arguments = vec![
            Argument::new("-object", "a b"),
            Argument { option: "--net", values: vec!["c".into(), "d".into()] },
        ];
        let all = of(Parts::Arguments(arguments));
        assert_eq!(all.text(), "# a note\n-object 'a b' \\\n--net c d\n");
        assert_eq!(all.lines().unwrap(), "-object\na b\n--net\nc\nd\n");
        assert_eq!(all.json()["arguments"], json!(["-object", "a b", "--net", "c", "d"]));
        let calls = of(Parts::Calls(vec!["f(1);".into()]));
        assert_eq!(
            (calls.text().as_str(), calls.lines().unwrap()),
            ("// a note\nf(1);\n", "f(1);\n".into())
        );
    }

    #[test]
    fn attach_lines_are_refused_for_xml_and_line_feeds() {
        let element = Element { parent: "domain", condition: None, xml: "<a/>\n".into() };
        assert_eq!(of(Parts::Elements(vec![element])).lines(), None);
        let argument = Argument::new("-object", "a\nb");
        assert_eq!(of(Parts::Arguments(vec![argument])).lines(), None);
    }

    #[test]
    fn notes_are_broken_at_blanks() {
        assert_eq!(wrapped("aa bb  cc ddddddd", 6), ["aa bb", "cc", "ddddddd"]);
    }
}
