//! Prometheus' text format, as engines write it: one sample after another, nothing kept.
//!
//! Lines that are no sample (comments, blank, broken, too long) are passed over, since one odd metric
//! must not hide the others. Labels are found in place when asked for. No crate does this: the one
//! that is used (`prometheus-parse`, last released in 2023) makes a map of everything, with regular
//! expressions and dates, of which two gauges in thousands of lines would be read.

use std::borrow::Cow;

/// A longer line is no gauge of ours.
const LINE_BYTES_MAX: usize = 16 << 10;

/// One measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    pub name: &'a str,
    /// What stands between the braces.
    labels: &'a str,
    pub value: f64,
}

/// All samples, in order.
pub fn samples(text: &[u8]) -> impl Iterator<Item = Sample<'_>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| line.len() <= LINE_BYTES_MAX);
    lines.filter_map(|line| sample(std::str::from_utf8(line).ok()?))
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    let (name, rest) = line.split_at(line.find(|c: char| !is_of_name(c))?);
    if name.is_empty() {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => {
            let end = find_bare(inside, b'}')?;
            (&inside[..end], &inside[end + 1..])
        }
        None => ("", rest),
    };
    // A timestamp may follow, or an exemplar.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

impl<'a> Sample<'a> {
    /// The value of a label, if the sample has it.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        loop {
            let (key, value) = rest.split_once('=')?;
            let quoted = value.trim_start().strip_prefix('"')?;
            let end = closing_quote(quoted)?;
            if key.trim_start_matches(',').trim() == name {
                return Some(unescaped(&quoted[..end]));
            }
            rest = quoted[end + 1..].trim_start();
        }
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Where `wanted` stands outside of quotes.
fn find_bare(text: &str, wanted: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = text[at..].find([char::from(wanted), '"'])? + at;
        if text.as_bytes()[found] == wanted {
            return Some(found);
        }
        at = found + 1;
        at += closing_quote(&text[at..])? + 1;
    }
}

/// Where the quotes that were opened before `text` close.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('\\', Some(next)) => {
                chars.next();
                plain.push(if next == 'n' { '\n' } else { next });
            }
            _ => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, f64)>) {
        let found: Vec<_> = samples(line.as_bytes()).map(|sample| (sample.name, sample.value)).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{line}");
    }

    #[test]
    fn samples_are_read_and_the_rest_passed_over() {
        check("llamacpp:requests_processing 2", Some(("llamacpp:requests_processing", 2.0)));
        check("  a{x=\"1\",}  1e3 1712345678901\r", Some(("a", 1000.0)));
        check("a{} +Inf", Some(("a", f64::INFINITY)));
        check("a {x=\"}\\\"}\"} 3 # {trace=\"t\"} 0.5", Some(("a", 3.0)));
        check("# TYPE a gauge", None);
        check("", None);
        check("a", None);
        check("a{x=\"1\" 2", None);
        check("a{x=\"1} 2", None);
        check("a two", None);
        check("{\"a.b\", x=\"1\"} 2", None);
        check("<html>404</html>", None);
        check(&format!("a{{x=\"{}\"}} 1", "y".repeat(LINE_BYTES_MAX)), None);
    }

    #[track_caller]
    fn check_label(labels: &str, name: &str, expected: Option<&str>) {
        let line = format!("a{{{labels}}} 1");
        let sample = samples(line.as_bytes()).next().unwrap();
        assert_eq!(sample.label(name).as_deref(), expected, "{labels}");
    }

    #[test]
    fn labels_are_found_by_name() {
        let two = r#"engine="0",model_name="org/a=b,\"c\"\\\n}""#;
        check_label(two, "engine", Some("0"));
        check_label(two, "model_name", Some("org/a=b,\"c\"\\\n}"));
        check_label(two, "name", None);
        check_label(" engine = \"0\" , dp = \"1\",", "dp", Some("1"));
        check_label("priority=\"\"", "priority", Some(""));
        check_label("", "engine", None);
        check_label("engine", "engine", None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            samples(&text).for_each(|sample| drop(sample.label("model_name")));
        }

        #[test]
        fn nothing_like_a_metric_makes_it_panic(text in r#"([ab:é]\{?([ab]="?[ab\\"}é]*"?,?){0,3}\}? ?[0-9.eN+-]* ?\n?){0,4}"#) {
            samples(text.as_bytes()).for_each(|sample| drop(sample.label("a")));
        }

        #[test]
        fn what_is_written_is_read(value in any::<f64>(), label in ".{0,40}") {
            let escaped = label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            let line = format!("vllm:x{{model_name=\"{escaped}\",engine=\"0\"}} {value}\n");
            let sample = samples(line.as_bytes()).next().unwrap();
            let labels = ["model_name", "engine"].map(|name| sample.label(name).map(Cow::into_owned));
            prop_assert_eq!(labels, [Some(label), Some("0".to_string())]);
            prop_assert!(sample.value == value || value.is_nan());
        }
    }
}
