//! `tests/cases.md` says where each case from the field is shown; here it is held to that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The kinds that the table has begun, with their number of cases. Adding one: a line here, its rows there.
const KINDS: [(&str, usize); 12] = [
    ("STR", 17),
    ("CAN", 6),
    ("RET", 14),
    ("BOD", 13),
    ("CAT", 14),
    ("HLT", 19),
    ("BAL", 15),
    ("QUE", 11),
    ("TMO", 5),
    ("SEC", 10),
    ("ACC", 5),
    ("OPS", 11),
];

/// How the note of a row without tests begins.
const EXCUSES: [&str; 2] = ["not yet: ", "chosen: "];

#[test]
fn the_table_of_cases_is_complete_and_true() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(here.join("tests/cases.md")).expect("tests/cases.md");
    let mut tests = BTreeSet::new();
    ["src", "tests"].iter().for_each(|folder| tests_in(&here.join(folder), &mut tests));
    let wrong = mistakes(&table, &tests);
    assert!(wrong.is_empty(), "tests/cases.md:\n{}", wrong.join("\n"));
}

/// What is wrong with a table, given the tests that there are.
fn mistakes(table: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rows: Vec<Row> = table.lines().filter_map(Row::read).collect();
    let mut wrong: Vec<String> = rows.iter().flat_map(|row| row.mistakes(tests)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row.id).or_default() += 1);
    let ids: BTreeSet<String> =
        KINDS.iter().flat_map(|(kind, cases)| (1..=*cases).map(move |n| format!("{kind}-{n:02}"))).collect();
    wrong.extend(ids.iter().filter(|id| !counts.contains_key(id.as_str())).map(|id| format!("{id} has no row")));
    wrong.extend(counts.keys().filter(|id| !ids.contains(**id)).map(|id| format!("{id} is of no kind in KINDS")));
    wrong.extend(counts.iter().filter(|(_, count)| **count > 1).map(|(id, count)| format!("{id} has {count} rows")));
    wrong
}

/// `| CAT-04 | `test`, `another` | a note |`
struct Row<'a> {
    id: &'a str,
    tests: Vec<&'a str>,
    note: &'a str,
}

impl Row<'_> {
    fn read(line: &str) -> Option<Row<'_>> {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [id, tests, note] = cells[..] else { return None };
        let (kind, number) = id.split_once('-')?;
        let is_id = kind.len() == 3 && number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit());
        let tests = tests.split('`').skip(1).step_by(2).collect();
        is_id.then_some(Row { id, tests, note })
    }

    fn mistakes(&self, tests: &BTreeSet<String>) -> Vec<String> {
        let id = self.id;
        let gone = self.tests.iter().filter(|test| !tests.contains(**test));
        let mut wrong: Vec<String> = gone.map(|test| format!("{id}: there is no test `{test}`")).collect();
        if self.tests.is_empty() {
            if !EXCUSES.iter().any(|excuse| self.note.starts_with(excuse)) {
                wrong.push(format!("{id}: neither a test nor a note that begins with one of {EXCUSES:?}"));
            }
            let prefix = format!("{}_", id.to_lowercase().replace('-', "_"));
            let there = tests.iter().filter(|test| test.starts_with(&prefix));
            wrong.extend(there.map(|test| format!("{id}: name its test `{test}`")));
        }
        wrong
    }
}

/// The names of all test functions below a folder.
fn tests_in(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in folder.read_dir().expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            tests_in(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            collect(&std::fs::read_to_string(&path).expect("a readable file"), tests);
        }
    }
}

fn collect(text: &str, tests: &mut BTreeSet<String>) {
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or(line.strip_prefix("fn "))
            && let Some((name, _)) = rest.split_once('(')
        {
            if is_test {
                tests.insert(name.to_owned());
            }
            is_test = false;
        }
    }
}

#[test]
fn a_false_table_is_found_out() {
    let mut tests = BTreeSet::new();
    collect("#[test]\nfn cat_01_a() {}\n#[tokio::test]\n#[ignore]\nasync fn cat_02_b() {}\nfn helper() {}", &mut tests);
    assert_eq!(tests.iter().map(String::as_str).collect::<Vec<_>>(), ["cat_01_a", "cat_02_b"]);
    let found = |row: &str| mistakes(row, &tests).into_iter().filter(|wrong| !wrong.ends_with("has no row")).count();
    assert_eq!(found("| CAT-01 | `cat_01_a` | |"), 0);
    assert_eq!(found("| CAT-03 | | not yet: later |"), 0);
    assert_eq!(found("| CAT-01 | `cat_01_z` | |"), 1, "no such test");
    assert_eq!(found("| CAT-01 | `helper` | |"), 1, "no test at all");
    assert_eq!(found("| CAT-03 | | |"), 1, "no word of it");
    assert_eq!(found("| CAT-02 | | not yet: later |"), 1, "it is there by now");
    assert_eq!(found("| CAT-15 | `cat_01_a` | |"), 1, "no such case");
    assert_eq!(found("| CAT-01 | `cat_01_a` | |\n| CAT-01 | `cat_01_a` | |"), 1, "twice");
    assert_eq!(mistakes("", &tests).len(), 140, "all are missing");
}
