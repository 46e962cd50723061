//! Origins of web pages, as they are written and as they are compared.

use serde::Serialize;

use super::problem::Report;
use super::read::{Read, Spot};

/// Which web pages may use Warmgate from a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cors {
    /// `https://chat.example.org`, `null`, `*` for any, or a beginning with a `*` behind it.
    pub origins: Vec<String>,
}

impl Cors {
    pub fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(start) => origin.starts_with(start),
            None => origin == allowed,
        })
    }
}

/// The list as it is written.
#[derive(Debug)]
pub struct Origins(pub Vec<String>);

impl Read for Origins {
    fn read(at: Spot, report: &mut Report) -> Option<Origins> {
        let written: Vec<Option<String>> = Read::read(Spot { path: at.path, node: at.node }, report)?;
        for (index, origin) in written.iter().enumerate() {
            if let Some(origin) = origin.as_ref().filter(|origin| !is_origin(origin)) {
                let what = format!("`{origin}` is not the origin of a page");
                let hint = "write it like https://chat.example.org, or * for every page";
                report.add(format!("{}[{index}]", at.path), what, hint);
            }
        }
        Some(Origins(written.into_iter().flatten().collect()))
    }
}

/// Browsers send an origin without a path, and in lower case.
fn is_origin(origin: &str) -> bool {
    let is_named = origin.split_once("://").is_some_and(|(_, host)| !host.is_empty() && !host.contains('/'));
    let is_plain = !origin.contains(|c: char| c.is_ascii_uppercase() || c.is_whitespace());
    (is_named && is_plain) || ["*", "null"].contains(&origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_as_browsers_write_them() {
        let cors = |origins: &[&str]| Cors { origins: origins.iter().map(|origin| (*origin).to_owned()).collect() };
        let check = |origins: &[&str], origin: &str, expected: bool| {
            assert_eq!(cors(origins).allows(origin), expected, "{origins:?} {origin}");
        };
        check(&[], "https://ui.test", false);
        check(&["https://ui.test"], "https://ui.test", true);
        check(&["https://ui.test"], "https://ui.test.evil.test", false);
        check(&["https://ui.test"], "http://ui.test", false);
        check(&["https://ui.test"], "null", false);
        check(&["null"], "null", true);
        check(&["chrome-extension://*"], "chrome-extension://abcd", true);
        check(&["chrome-extension://*"], "https://ui.test", false);
        check(&["*"], "https://ui.test", true);
    }
}
