//! Forms (`multipart/form-data`, RFC 7578): where the parts of one stand.
//!
//! Follows RFC 2046 as strictly as engines do: lines end with CRLF and a boundary is a line of its own.
//! Nothing is decoded but the names; the parts' bytes are only pointed at. Time is linear in the body.

use std::ops::Range;

/// RFC 2046 allows no longer boundary.
const BOUNDARY_LIMIT: usize = 70;

/// Longest head of a part that is looked at; a name and a file name fit many times over.
const HEAD_LIMIT: usize = 8 * 1024;

const BREAK: &[u8] = b"\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The boundary that a form's content type names; `None` if it is no form.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let boundary = parameter(content_type, "boundary").filter(|text| (1..=BOUNDARY_LIMIT).contains(&text.len()))?;
    media.eq_ignore_ascii_case("multipart/form-data").then_some(boundary)
}

/// One part of a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Empty if it has none.
    pub name: String,
    pub is_file: bool,
    /// Readers of forms differ about its name: it has several, or one that is spelled in pieces.
    pub is_odd: bool,
    pub value: Range<usize>,
}

/// The parts of a form, in order, as far as it is one.
pub(super) struct Parts<'a> {
    form: &'a [u8],
    /// Line break, two dashes and the boundary.
    delimiter: Vec<u8>,
    /// Where the next part begins; `None` after the last.
    next: Option<usize>,
}

impl<'a> Parts<'a> {
    pub fn new(form: &'a [u8], boundary: &str) -> Parts<'a> {
        let delimiter = [BREAK, b"--", boundary.as_bytes()].concat();
        let mut parts = Parts { form, delimiter, next: None };
        // The first delimiter needs no line before it.
        parts.next = match form.strip_prefix(&parts.delimiter[BREAK.len()..]) {
            Some(rest) if rest_of_line(rest).is_some() => Some(form.len() - rest.len()),
            _ => parts.delimiter_from(0).map(|found| found.end),
        };
        parts
    }

    /// The next delimiter that is a whole line.
    fn delimiter_from(&self, mut from: usize) -> Option<Range<usize>> {
        loop {
            let start = find(self.form, &self.delimiter, from)?;
            let end = start + self.delimiter.len();
            if self.form[end..].starts_with(b"--") || rest_of_line(&self.form[end..]).is_some() {
                return Some(start..end);
            }
            from = end;
        }
    }
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let at = self.next.take()?;
        // The last delimiter has two dashes behind it, and so no rest of a line.
        let head_at = at + rest_of_line(&self.form[at..])?;
        let head_limit = self.form.len().min(head_at + HEAD_LIMIT);
        // A part without a head begins with the empty line that would end it.
        let head_end = find(&self.form[..head_limit], HEAD_END, head_at - BREAK.len())?;
        let value_at = head_end + HEAD_END.len();
        let found = self.delimiter_from(value_at)?;
        self.next = Some(found.end);
        let head = String::from_utf8_lossy(&self.form[head_at.min(head_end)..head_end]);
        Some(Part { value: value_at..found.start, ..part_of(&head) })
    }
}

/// Name and kind of the part with this head.
fn part_of(head: &str) -> Part {
    let dispositions = || {
        head.split("\r\n").filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        })
    };
    let is_folded = head.split("\r\n").any(|line| line.starts_with([' ', '\t']) || line.contains(['\r', '\n']));
    let Some(value) = dispositions().next() else { return Part { is_odd: is_folded, ..Part::default() } };
    let is = |wanted: &'static str| move |(name, _): &(&str, String)| name.eq_ignore_ascii_case(wanted);
    let in_pieces = |(name, _): (&str, String)| name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("name*"));
    Part {
        name: parameter(value, "name").unwrap_or_default(),
        is_file: parameters(value).any(|one| is("filename")(&one) || is("filename*")(&one)),
        is_odd: is_folded
            || dispositions().count() > 1
            || parameters(value).filter(is("name")).count() > 1
            || parameters(value).any(in_pieces),
        value: 0..0,
    }
}

/// Length of blanks and a line break; `None` if something else stands here.
fn rest_of_line(bytes: &[u8]) -> Option<usize> {
    let blanks = bytes.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    bytes[blanks..].starts_with(BREAK).then_some(blanks + BREAK.len())
}

/// Where `needle`, which begins with a CR, is found from `from` on.
fn find(bytes: &[u8], needle: &[u8], mut from: usize) -> Option<usize> {
    loop {
        from += bytes.get(from..)?.iter().position(|&b| b == b'\r')?;
        if bytes[from..].starts_with(needle) {
            return Some(from);
        }
        from += 1;
    }
}

/// A parameter of a header's value, quotes undone.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    parameters(value).find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, text)| text)
}

/// The parameters of a header's value with their names, quotes undone.
fn parameters(value: &str) -> impl Iterator<Item = (&str, String)> {
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest);
    std::iter::from_fn(move || {
        let (name, after) = rest.split_once('=')?;
        // Only the last of several is followed by the equals sign.
        let name = name.rsplit(';').next().unwrap_or_default().trim();
        let (text, after) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let (text, _) = after.split_once(';').unwrap_or((after, ""));
                (text.trim().to_string(), &after[text.len()..])
            }
        };
        rest = after;
        Some((name, text))
    })
}

/// The text up to the closing quote, and what follows it.
fn unquoted(quoted: &str) -> (String, &str) {
    let (mut text, mut chars) = (String::new(), quoted.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => text.extend(chars.next()),
            _ => text.push(c),
        }
    }
    (text, chars.as_str())
}

#[cfg(test)]
mod tests;
