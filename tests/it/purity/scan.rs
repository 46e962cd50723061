//! Finding words of impure code in Rust source.

/// What pure code has no use for. A word must stand alone: `Instant` is not in `InstantMeal`.
const IMPURE: [&str; 31] = [
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "stdin",
    "stdout",
    "stderr",
    "Instant",
    "SystemTime",
    "tokio",
    "async",
    "await",
    "rand::",
    "thread_rng",
    "fastrand",
    "getrandom",
    "RandomState",
    "log::",
    "tracing",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "thread_local!",
    "static mut",
    "LazyLock",
    "OnceLock",
    "lazy_static",
    "once_cell",
];

/// Line number and word of all that is impure in the source.
pub fn impurities(source: &str) -> Vec<(usize, &'static str)> {
    let code = spread_std_imports(&code_only(source));
    let mut found = Vec::new();
    for (n, line) in code.lines().enumerate() {
        let here = IMPURE.into_iter().filter(|word| stands_alone(line, word));
        found.extend(here.map(|word| (n + 1, word)));
    }
    found
}

fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open_end = word.ends_with("::");
        !before.is_some_and(is_word) && (open_end || !after.is_some_and(is_word))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `std::{fs, net::IpAddr}` read as `std::{std::fs, std::net::IpAddr}`.
fn spread_std_imports(code: &str) -> String {
    let mut spread = String::with_capacity(code.len());
    let mut depth_in_std = 0_u32;
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        if depth_in_std == 0 && rest.starts_with("std::{") {
            spread += "std::{std::";
            rest = &rest["std::{".len()..];
            depth_in_std = 1;
            continue;
        }
        spread.push(c);
        rest = &rest[c.len_utf8()..];
        match c {
            '{' if depth_in_std > 0 => depth_in_std += 1,
            '}' => depth_in_std = depth_in_std.saturating_sub(1),
            ',' if depth_in_std == 1 => {
                let blank = rest.len() - rest.trim_start().len();
                spread += &rest[..blank];
                spread += "std::";
                rest = &rest[blank..];
            }
            _ => {}
        }
    }
    spread
}

/// The source with comments and the insides of strings blanked out, line for line.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = blank_length(rest);
        if skipped == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        code.push(' ');
        rest = &rest[skipped..];
    }
    code
}

/// How many bytes from here are a comment or a literal; zero if code stands here.
fn blank_length(rest: &str) -> usize {
    let to = |end: &str, from: usize| {
        let tail = rest[from..].find(end);
        tail.map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return to("*/", 2);
    }
    if let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            return to(&format!("\"{}", "#".repeat(hashes)), hashes + 2);
        }
    }
    match rest.chars().next() {
        Some('"') => string_length(rest, '"'),
        Some('\'') if is_char_literal(rest) => string_length(rest, '\''),
        _ => 0,
    }
}

fn is_char_literal(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

fn string_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[test]
fn planted_impurities_are_found() {
    for word in IMPURE {
        let planted = format!("fn f() {{\n    {word} x;\n}}\n");
        assert_eq!(impurities(&planted), [(2, word)], "planted: {word}");
    }
}

#[test]
fn grouped_imports_are_found() {
    let planted = "use std::{\n    collections::HashMap, fs,\n    net::{IpAddr, TcpStream},\n};\n";
    assert_eq!(impurities(planted), [(2, "std::fs"), (3, "std::net")]);
}

#[test]
fn words_in_comments_strings_and_longer_words_are_not() {
    let innocent = [
        "//! The core never asks tokio, nor `Instant::now()`.",
        "/* async */ let x = 1; // std::fs",
        "let x = \"await \\\" async\"; let y = r#\"a \"log::\" b\"#;",
        "let catalog = InstantMeal::operand(asynchronous, 'a', b'\\'');",
        "use std::{collections::HashMap, time::Duration};",
    ];
    for line in innocent {
        assert_eq!(impurities(line), [], "{line}");
    }
}
