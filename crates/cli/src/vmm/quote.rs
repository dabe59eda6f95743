//! Quotes values for the outputs of `crate::vmm`: a POSIX shell, XML, C, and the option parsers of
//! VMMs.
//!
//! | function | output | caller |
//! |---|---|---|
//! | [`shell`] | arguments for people, commands of a shell | `vmm::output`, `vmm::firecracker` |
//! | [`xml`] | elements of a libvirt domain | `vmm::libvirt`, `vmm::frames` |
//! | [`xml_comment`] | notes and conditional elements in XML | `vmm::output` |
//! | [`qemu`] | options of QEMU, also inside XML | `vmm::qemu`, `vmm::frames` |
//! | [`cloud_hypervisor`], [`crosvm`] | options of these VMMs | their modules |
//! | [`c`] | statements in C that call libkrun | `vmm::libkrun`, `vmm::frames` |
//!
//! Socket paths are the operator's text and can contain any character that a path accepts. Each
//! function returns a text that its reader takes as one value; none truncates, refuses or checks.
//! Exceptions: XML has no form for control characters other than tab, line feed and carriage
//! return, and [`xml`] leaves them; options of vfkit (`vmm::frames`) are not quoted for vfkit,
//! where a path must have no comma.
//!
//! A value must be quoted once for each reader: a second call quotes the quotes. An option of QEMU
//! that stands in XML or in a shell command has two readers, and is passed to two functions, first
//! [`qemu`]. Arguments in the output as lines and in the JSON form are not quoted for a shell;
//! Firecracker's commands are. The functions run in the main thread of `causeway port show --for`
//! and `causeway vm show --for`.

/// Quotes a word for a POSIX shell.
pub fn shell(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-=.,:/+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Escapes a text for an XML attribute or element.
pub fn xml(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            // A parser would turn these into blanks in an attribute.
            '\n' | '\r' | '\t' => out.push_str(&format!("&#{};", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Returns a text that an XML comment may contain: two hyphens would end the comment.
pub fn xml_comment(text: &str) -> String {
    let text = text.replace("--", "- -");
    // An odd number of hyphens leaves a pair.
    text.replace("--", "- -")
}

/// Returns a value of QEMU's `key=value,…` options, in which a doubled comma is a comma.
pub fn qemu(value: &str) -> String {
    value.replace(',', ",,")
}

/// Returns a value of Cloud Hypervisor's `key=value,…` options, in quotes if it needs them; a
/// doubled quote is a quote.
pub fn cloud_hypervisor(value: &str) -> String {
    if value.contains([',', '"', '[', ']']) || value.trim() != value {
        return format!("\"{}\"", value.replace('"', "\"\""));
    }
    value.to_owned()
}

/// Returns a value of crosvm's `key=value,…` options, in quotes if it needs them.
pub fn crosvm(value: &str) -> String {
    if value.contains([',', '"', '\'', '[', ']', '=', ' ', '\\']) {
        return format!("\"{}\"", value.replace('\\', r"\\").replace('"', "\\\""));
    }
    value.to_owned()
}

/// Returns a string literal of C.
pub fn c(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            // Three octal digits end the escape, whichever digit follows. A question mark could
            // begin a trigraph.
            b'?' | 0..=31 | 127..=255 => out.push_str(&format!("\\{byte:03o}")),
            _ => out.push(char::from(byte)),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_stay_one_value_for_each_reader() {
        let odd = "/a b,c'd\"<&>--é\n";
        assert_eq!(shell("/run/a,b"), "/run/a,b");
        assert_eq!(shell(odd), "'/a b,c'\\''d\"<&>--é\n'");
        assert_eq!(xml(odd), "/a b,c&apos;d&quot;&lt;&amp;&gt;--é&#10;");
        assert_eq!(qemu(odd), "/a b,,c'd\"<&>--é\n");
        assert_eq!(cloud_hypervisor("/run/a.sock"), "/run/a.sock");
        assert_eq!(cloud_hypervisor("/a,\"b"), "\"/a,\"\"b\"");
        assert_eq!(crosvm("/run/a.sock"), "/run/a.sock");
        assert_eq!(crosvm("/a,\"b\\"), r#""/a,\"b\\""#);
        assert_eq!(c("/a\"\\é\n?"), r#""/a\"\\\303\251\012\077""#);
        for hyphens in 2..7 {
            assert!(!xml_comment(&"-".repeat(hyphens)).contains("--"), "{hyphens}");
        }
    }

    #[test]
    fn shell_words_are_read_back_by_a_shell() {
        let words = ["/a b,c'd\"<&>$HOME`x`\\", "", "*", "-x", "a=b"];
        let script = format!("printf '%s\\n' {}", words.map(shell).join(" "));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.join("\n") + "\n");
    }
}
