//! The known word that a mistyped one was probably meant to be.

/// The nearest of `known` by edit distance, if it is near enough to be a guess worth making: one
/// letter in three, and never more than three.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let letters = word.chars().count();
    let far = (letters / 3).clamp(1, 3);
    // Also keeps a monstrous key from being compared letter by letter.
    let comparable = known.iter().filter(|other| other.len().abs_diff(letters) <= far);
    let (distance, guess) = comparable.map(|other| (strsim::damerau_levenshtein(word, other), *other)).min()?;
    (distance <= far).then_some(guess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, &["address", "memory", "slots", "url"]), expected, "{word}");
    }

    #[test]
    fn guesses() {
        check("slotz", Some("slots"));
        check("slot", Some("slots"));
        check("adress", Some("address"));
        check("Adresses", None);
        check("uri", Some("url"));
        check("memroy", Some("memory"));
        check("", None);
        check("weight", None);
        check(&"slots".repeat(100_000), None);
    }
}
