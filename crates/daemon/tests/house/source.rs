//! Rules for source files. Comments and literals are skipped as the compiler does.

use std::ops::Range;

/// Paths in which `unsafe` is permitted.
const UNSAFE: &[&str] = &[
    "crates/host/",
    "crates/memory/",
    "crates/ring/",
    "crates/channel/",
    "crates/attach/",
    "bench/src/bare/",
    "clients/endpoint/src/",
    "clients/ibverbs/src/",
    "clients/libfabric/src/",
    "clients/myriexpress/src/",
];
/// Longest hand-written file, in lines.
const LINES_MAX: usize = 800;
/// Longest function, in lines from its name to its end.
const FUNCTION_LINES_MAX: usize = 70;
/// A SAFETY comment must be within this many lines above its block.
const REASON_WITHIN: usize = 3;

/// Returns `text` with comments and literals blanked; lines are kept.
pub fn code(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    for span in skipped(text.as_bytes()) {
        out[span].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the line comments of `text`, without their marks, one on each line.
pub fn comments(text: &str) -> String {
    let comment = |span: Range<usize>| text.get(span).filter(|text| text.starts_with("//"));
    let comments = skipped(text.as_bytes()).into_iter().filter_map(comment);
    comments.map(|text| text.trim_start_matches(['/', '!'])).collect::<Vec<_>>().join("\n")
}

/// Returns the spans of comments and literals.
fn skipped(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut spans, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let Some(end) = skip(bytes, at) else {
            at += 1;
            continue;
        };
        spans.push(at..end.min(bytes.len()));
        at = end;
    }
    spans
}

/// Returns the end of the comment or literal that begins at `at`, if there is one.
fn skip(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let inside_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => Some(at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(at + block_comment(rest)),
        [b'"', ..] => Some(at + quoted(rest, b'"')),
        [b'\'', ..] => character(rest).map(|len| at + len),
        [b'r', b'"' | b'#', ..]
            if !inside_word || bytes[at - 1] == b'b' || bytes[at - 1] == b'c' =>
        {
            raw_string(rest).map(|len| at + len)
        }
        _ => None,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a literal between `quote`s, escapes included.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    let one = std::str::from_utf8(&rest[1..rest.len().min(5)]);
    let width = match one {
        Ok(text) => text.chars().next()?.len_utf8(),
        Err(error) if error.valid_up_to() > 0 => {
            let valid = std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).ok()?;
            valid.chars().next()?.len_utf8()
        }
        Err(_) => return None,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let body = 2 + hashes;
    let at = rest[body..].windows(end.len()).position(|w| w == end);
    Some(at.map_or(rest.len(), |at| body + at + end.len()))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Returns the lines (from 0) that contain the word `unsafe`, and the text that follows it.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.match_indices("unsafe").filter_map(|(at, word)| {
        let after = &code[at + word.len()..];
        let whole = !after.bytes().next().is_some_and(is_word)
            && !code[..at].bytes().next_back().is_some_and(is_word);
        whole.then(|| (code[..at].matches('\n').count(), after.trim_start()))
    })
}

/// Returns the lines (from 0) on which an unsafe block or implementation begins.
pub fn blocks(text: &str) -> impl Iterator<Item = usize> + use<> {
    let code = code(text);
    let lines: Vec<usize> = words(&code)
        .filter(|(_, after)| after.starts_with('{') || after.starts_with("impl"))
        .map(|(line, _)| line)
        .collect();
    lines.into_iter()
}

/// Returns every `unsafe` in a file that may not have any.
pub fn misplaced(path: &str, text: &str) -> Vec<String> {
    if UNSAFE.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let code = code(text);
    words(&code)
        .map(|(line, _)| format!("{path}:{}: unsafe is not allowed here", line + 1))
        .collect()
}

/// Returns every unsafe block without a SAFETY comment shortly above it.
pub fn unexplained(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let reason = |line: usize| {
        let above = &lines[line.saturating_sub(REASON_WITHIN)..line];
        above.iter().any(|l| l.trim_start().starts_with("// SAFETY: "))
    };
    let bare = blocks(text).filter(|&line| !reason(line));
    bare.map(|line| format!("{path}:{}: an unsafe block without `// SAFETY:`", line + 1)).collect()
}

/// Returns an error if a file exceeds [`LINES_MAX`].
pub fn long(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| format!("{path}: {lines} lines, at most {LINES_MAX} are allowed"))
}

/// Returns the functions that exceed [`FUNCTION_LINES_MAX`].
pub fn long_functions(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let mut faults = Vec::new();
    for (at, word) in code.match_indices("fn ") {
        let name = code[at + word.len()..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
        let (Some(name), false) = (name, code[..at].bytes().next_back().is_some_and(is_word))
        else {
            continue;
        };
        let Some(body) = body(&code[at..]).filter(|_| !name.is_empty()) else { continue };
        let (line, lines) = (code[..at].matches('\n').count(), body.matches('\n').count());
        if lines >= FUNCTION_LINES_MAX {
            let lines = lines + 1;
            faults.push(format!(
                "{path}:{}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed",
                line + 1
            ));
        }
    }
    faults
}

/// Returns a function with its body; `None` of a declaration.
fn body(code: &str) -> Option<&str> {
    let (mut round, mut depth) = (0_usize, 0_usize);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round = round.checked_sub(1)?,
            b'{' => depth += 1,
            b'}' if depth == 1 && round == 0 => return Some(&code[..=at]),
            b'}' => depth = depth.checked_sub(1)?,
            b';' if depth == 0 && round == 0 => return None,
            _ => {}
        }
    }
    None
}

#[test]
fn source_long_functions_are_found() {
    let function = |lines: usize| format!("fn f(a: [u8; 2]) {{\n{}}}\n", "x;\n".repeat(lines - 2));
    assert_eq!(long_functions("a", &function(FUNCTION_LINES_MAX)), Vec::<String>::new());
    for text in [
        function(FUNCTION_LINES_MAX + 1),
        format!("fn g();\nimpl A {{\n    pub {}}}\n", function(FUNCTION_LINES_MAX + 1)),
        format!("fn g() {{ \"}}\" }} {}", function(FUNCTION_LINES_MAX + 1)),
    ] {
        let faults = long_functions("a", &text);
        assert!(faults.len() == 1 && faults[0].contains("f has 71 lines"), "{faults:?}");
    }
    let pointer = format!("type F = fn (u8);\n{}", "x;\n".repeat(FUNCTION_LINES_MAX));
    assert_eq!(long_functions("a", &pointer), Vec::<String>::new());
}

#[test]
fn source_misplaced_unsafe_is_found() {
    for text in [
        "fn f() { unsafe { g() } }",
        "unsafe fn f() {}",
        "unsafe impl Send for S {}",
        "let a = 'u'; let b: &'static str = \"\"; unsafe {}",
        "let c = '\"'; unsafe {} // \"",
        "let d = b'\\''; unsafe {}",
        "/* /* */ */ unsafe {}",
        "let e = r#\"\"#; unsafe {}",
        "let f = \"\\\"\"; unsafe\n{}",
        "let g = 'é'; let h = '\u{1f600}'; unsafe {}",
        "for r in \"\" .. { unsafe {} }",
    ] {
        assert_eq!(misplaced("crates/wire/src/lib.rs", text).len(), 1, "{text}");
        assert_eq!(misplaced("vm/src/lib.rs", text).len(), 1, "{text}");
        assert!(misplaced("crates/memory/src/lib.rs", text).is_empty());
    }
}

#[test]
fn source_comments_and_literals_are_no_unsafe() {
    for text in [
        "#![forbid(unsafe_code)]",
        "// unsafe { }\n/// unsafe\n//! unsafe",
        "/* unsafe { } /* unsafe */ unsafe */",
        "let s = \"unsafe { \\\" unsafe\";",
        "let s = r#\"unsafe \" unsafe\"#; let t = br\"unsafe\";",
        "fn notunsafe() { not_unsafe() }",
    ] {
        assert_eq!(misplaced("crates/wire/src/lib.rs", text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn source_unsafe_without_comment_is_found() {
    let far = "// SAFETY: far.\n\n\n\nlet a = unsafe { b() };";
    let loose = "// safe, really\nlet a = unsafe { b() };";
    let implementation = "unsafe impl Send for S {}";
    let second = "// SAFETY: this one.\nunsafe { a() }\n\n\nunsafe { b() }";
    let quoted = "let s = \"// SAFETY: no.\";\nunsafe { a() }";
    for text in [far, loose, implementation, second, quoted, "unsafe\n{ a() }"] {
        assert_eq!(unexplained("a", text).len(), 1, "{text}");
    }
    let near = "// SAFETY: near,\n// as it should be.\nlet a =\n    unsafe { b() };";
    for text in [near, "/// # Safety\nunsafe fn f() {}", "// SAFETY: s.\nunsafe impl Send for S {}"]
    {
        assert_eq!(unexplained("a", text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn source_long_files_are_found() {
    assert_eq!(long("a", &"x\n".repeat(LINES_MAX)), None);
    assert!(long("a", &"x\n".repeat(LINES_MAX + 1)).is_some());
}
