//! One input out of others: what broken clients, cut connections and bad days do to bytes.
//!
//! A mutation knows no format. Formats come in by the seeds and by each target's words; the mutations
//! cut, double, nest, swap and poison them. An input never grows past `INPUT_BYTES_MAX`.

use super::chance::Chance;

/// Long enough for every bound of a few thousand.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Most inputs are no longer: more of them are tried, and what matters is in the first lines.
const USUAL_BYTES_MAX: usize = 2 * 1024;

/// Bytes and texts that any reader may stumble over.
const POISON: [&[u8]; 22] = [
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\xbd",
    b"\xf0\x9f\xa6\x80",
    b"\\ud83e",
    b"\\udd80",
    b"\\u0000",
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"1e999",
    b"-1",
    b"18446744073709551616",
    b"4294967295",
    b"null",
    b"\"\"",
    b"[]",
    b"{}",
    b"\x1b[0m",
];

/// Bytes that mean something to some reader.
const SIGNS: &[u8] = b"{}[]\",:\\'\n\r\t -+.eE0123456789#&*!|>%@`=;~\0\x7f\x80\xff";

/// Makes an input of a seed, with one to some changes.
pub fn mutate(seeds: &[Vec<u8>], words: &[&str], chance: &mut Chance) -> Vec<u8> {
    let mut input = chance.pick(seeds).clone();
    let longest = if chance.one_in(100) { INPUT_BYTES_MAX } else { USUAL_BYTES_MAX };
    // Mostly few changes: an input that is all wrong is refused at its first byte.
    for _ in 0..1 + chance.below(4) * chance.below(3) {
        change(&mut input, seeds, words, chance);
        input.truncate(longest);
    }
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str], chance: &mut Chance) {
    match chance.below(13) {
        0 => set_byte(input, |byte, chance| byte ^ (1 << chance.below(8)), chance),
        1 => set_byte(input, |_, chance| *chance.pick(SIGNS), chance),
        2 => {
            let word = chance.pick(words).as_bytes().to_vec();
            insert(input, &word, chance);
        }
        3 => {
            let poison = *chance.pick(&POISON);
            insert(input, poison, chance);
        }
        4 => {
            let range = range(input, chance);
            input.drain(range);
        }
        5 => {
            let part = input[range(input, chance)].to_vec();
            insert(input, &part, chance);
        }
        6 => {
            let part = input[range(input, chance)].to_vec();
            let times = 1 << chance.below(11);
            insert(input, &part.repeat(times.min(INPUT_BYTES_MAX / part.len().max(1))), chance);
        }
        7 => {
            let other = chance.pick(seeds);
            let part = other[range(other, chance)].to_vec();
            insert(input, &part, chance);
        }
        8 => {
            let cut = chance.below(input.len() + 1);
            let other = chance.pick(seeds);
            input.truncate(cut);
            input.extend_from_slice(&other[chance.below(other.len() + 1)..]);
        }
        9 => input.truncate(chance.below(input.len() + 1)),
        10 => nest(input, chance),
        11 => replace_number(input, chance),
        _ => replace_line_ends(input, chance),
    }
}

fn set_byte(input: &mut [u8], new: impl Fn(u8, &mut Chance) -> u8, chance: &mut Chance) {
    let at = chance.below(input.len());
    if let Some(&byte) = input.get(at) {
        input[at] = new(byte, chance);
    }
}

fn insert(input: &mut Vec<u8>, part: &[u8], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    input.splice(at..at, part.iter().copied());
}

/// A part of the input: mostly a short one.
fn range(input: &[u8], chance: &mut Chance) -> std::ops::Range<usize> {
    let from = chance.below(input.len() + 1);
    let longest = if chance.one_in(4) { input.len() } else { 16 };
    from..input.len().min(from + chance.below(longest + 1))
}

/// Wraps a part into itself, or opens without end.
fn nest(input: &mut Vec<u8>, chance: &mut Chance) {
    let (open, close) =
        *chance.pick(&[("[", "]"), ("{\"a\":", "}"), ("[{\"content\":", "}]"), ("- ", ""), ("\"", "\"")]);
    let depth = 1 << chance.below(12);
    let range = range(input, chance);
    let close = if chance.one_in(3) { "" } else { close };
    let wrapped = [open.repeat(depth).as_bytes(), &input[range.clone()], close.repeat(depth).as_bytes()].concat();
    input.splice(range, wrapped);
}

/// Puts another number where one stands.
fn replace_number(input: &mut Vec<u8>, chance: &mut Chance) {
    let digits: Vec<usize> = (0..input.len()).filter(|&at| input[at].is_ascii_digit()).collect();
    if digits.is_empty() {
        return;
    }
    let from = *chance.pick(&digits);
    let length = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let others =
        ["0", "-1", "1e999", "-1e400", "18446744073709551615", "18446744073709551616", "4294967296", "0.5", "1e9"];
    let other = if chance.one_in(8) { "9".repeat(400) } else { chance.pick(&others).to_string() };
    input.splice(from..from + length, other.bytes());
}

fn replace_line_ends(input: &mut Vec<u8>, chance: &mut Chance) {
    let ends: [&[u8]; 4] = [b"\r\n", b"\r", b"\n\n", b""];
    let end = *chance.pick(&ends);
    *input = input.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(end);
}
