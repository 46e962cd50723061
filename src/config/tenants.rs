//! Tenants: who may use what, and how much of it.
//!
//! Keys come as hashes, in the file itself, in files of their own or in a folder of such files. Neither a
//! key nor what stands at its place is ever quoted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::bounds::{check_count, check_number, check_unique};
use super::file::{self, File};
use super::key::KeyHash;
use super::node::Node;
use super::plan::{Plan, Tenant, TenantLimits};
use super::problem::Report;
use super::read::{Read, Spot, one_of};
use crate::routing::ask::Priority;

/// Each has its series in the metrics and its minute in memory.
const TENANTS_MAX: usize = 1024;

/// Of one tenant.
const KEYS_MAX: usize = 4096;

/// Of one tenant; each request is held against them.
const MODELS_MAX: usize = 256;

const MODEL_BYTES_MAX: usize = 256;
const NAME_CHARS_MAX: usize = 64;
const KEY_FILES_MAX: usize = 1024;
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

const MAKE_A_KEY: &str = "make one with `openssl rand -hex 32`, and its line here with `warmgate hash-key`";

/// A key, as written.
#[derive(Clone, Debug)]
pub enum KeySource {
    Hash(KeyHash),
    /// Hashes, one a line; relative to the folder of the configuration.
    File(PathBuf),
}

impl Read for KeySource {
    fn read(at: Spot, report: &mut Report) -> Option<KeySource> {
        let source = match at.node {
            Node::Text(text) => text.parse().ok().map(KeySource::Hash),
            Node::Map(pairs) => match pairs.as_slice() {
                [(key, Node::Text(path))] if key == "file" && !path.is_empty() => Some(KeySource::File(path.into())),
                _ => None,
            },
            _ => None,
        };
        if source.is_none() {
            let what = "expected sha256: and 64 hexadecimal digits, or {file: PATH}, never the key itself";
            report.add(at.path, what, "`warmgate hash-key` prints the line for a key");
        }
        source
    }
}

impl Read for Priority {
    fn read(at: Spot, report: &mut Report) -> Option<Priority> {
        one_of(at, &Priority::ALL.map(|class| (class.name(), class)), report)
    }
}

pub fn check_written(written: &File, report: &mut Report) {
    let tenants = written.tenants.as_deref().unwrap_or_default();
    check_count("tenants", tenants.len(), 0..=TENANTS_MAX, report);
    let tenants = &tenants[..tenants.len().min(TENANTS_MAX)];
    for (index, tenant) in tenants.iter().enumerate() {
        if let Some(tenant) = tenant {
            check_tenant(tenant, &format!("tenants[{index}]"), report);
        }
    }
    let names = tenants.iter().map(|tenant| tenant.as_ref()?.name.as_ref());
    check_unique(|index| format!("tenants[{index}].name"), names, "", report);
}

fn check_tenant(tenant: &file::Tenant, path: &str, report: &mut Report) {
    let fits = |name: &String| (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    if !tenant.name.as_ref().is_none_or(fits) {
        let what = format!("must be 1 to {NAME_CHARS_MAX} visible ASCII characters without spaces");
        report.add(format!("{path}.name"), what, "it goes into metrics and logs as it is");
    }
    if let Some(keys) = &tenant.keys {
        check_count(&format!("{path}.keys"), keys.len(), 0..=KEYS_MAX, report);
    }
    if let Some(models) = &tenant.models {
        check_count(&format!("{path}.models"), models.len(), 1..=MODELS_MAX, report);
        for (index, model) in models.iter().enumerate().take(MODELS_MAX) {
            let fits = |model: &String| {
                (1..=MODEL_BYTES_MAX).contains(&model.len()) && !model.bytes().any(|b| b.is_ascii_control())
            };
            if !model.as_ref().is_none_or(fits) {
                let what = format!("must be 1 to {MODEL_BYTES_MAX} printable bytes");
                report.add(format!("{path}.models[{index}]"), what, "a * stands for anything");
            }
        }
    }
    if let Some(limits) = &tenant.limits {
        check_number(&format!("{path}.limits.rpm"), limits.rpm, 1..=10_000_000, report);
        check_number(&format!("{path}.limits.tpm"), limits.tpm, 1..=u32::MAX, report);
        check_number(&format!("{path}.limits.concurrent"), limits.concurrent, 1..=100_000, report);
    }
}

/// A key belongs to one tenant, and somebody can be each tenant: by a key, or by a token that names it.
pub fn check_together(plan: &Plan, report: &mut Report) {
    if plan.jwt.is_some() && plan.tenants.is_empty() {
        report.add("jwt", "names tenants, and there are none", "write them under `tenants:`; they need no keys");
    }
    let mut owners: HashMap<KeyHash, &str> = HashMap::new();
    for (index, tenant) in plan.tenants.iter().enumerate() {
        let path = format!("tenants[{index}].keys");
        if tenant.keys.is_empty() && plan.jwt.is_none() {
            report.add(format!("tenants[{index}]"), "has no key, so nobody can be it", MAKE_A_KEY);
        }
        if tenant.keys.iter().any(KeyHash::is_well_known) {
            report.add(path.clone(), "has a key that stands in examples everywhere", MAKE_A_KEY);
        }
        for key in &tenant.keys {
            let owner = *owners.entry(*key).or_insert(&tenant.name);
            if owner != tenant.name {
                report.add(path.clone(), format!("has a key of tenant {owner}"), "each key belongs to one tenant");
            }
        }
    }
}

pub fn resolve(written: Vec<Option<file::Tenant>>, folder: &Path, report: &mut Report) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (index, tenant) in written.into_iter().enumerate().take(TENANTS_MAX) {
        let path = format!("tenants[{index}]");
        tenants.extend(tenant.and_then(|tenant| resolve_one(tenant, &path, folder, report)));
    }
    tenants
}

/// `None` without a name, which is reported.
fn resolve_one(written: file::Tenant, path: &str, folder: &Path, report: &mut Report) -> Option<Tenant> {
    if written.name.is_none() {
        report.add_missing(&format!("{path}.name"), "a short name for metrics and logs, like research");
    }
    let mut keys = Vec::new();
    for (index, source) in written.keys.into_iter().flatten().enumerate().take(KEYS_MAX) {
        match source {
            Some(KeySource::Hash(key)) => keys.push(key),
            Some(KeySource::File(file)) => {
                take_file(&folder.join(file), &format!("{path}.keys[{index}]"), &mut keys, report);
            }
            None => {}
        }
    }
    if let Some(dir) = written.keys_dir {
        take_folder(&folder.join(dir), &format!("{path}.keys_dir"), &mut keys, report);
    }
    if keys.len() > KEYS_MAX {
        report.add(format!("{path}.keys"), format!("has more than {KEYS_MAX} keys"), "");
    }
    let limits = written.limits.unwrap_or_default();
    Some(Tenant {
        name: written.name?,
        keys,
        models: written.models.map(|models| models.into_iter().flatten().collect()),
        limits: TenantLimits { rpm: limits.rpm, tpm: limits.tpm, concurrent: limits.concurrent },
        priority: written.priority.unwrap_or_default(),
        management: written.management.unwrap_or(false),
        cache_salt: written.cache_salt.unwrap_or(false),
    })
}

/// Each file in a folder but the hidden ones, by which secret stores keep their house.
fn take_folder(dir: &Path, path: &str, keys: &mut Vec<KeyHash>, report: &mut Report) {
    let names = match report.files.list(dir, KEY_FILES_MAX + 1) {
        Ok(names) => names,
        Err(error) => return report.add(path, format!("the folder cannot be read: {error}"), ""),
    };
    let visible = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| !name.starts_with('.')) && file.is_file()
    };
    let files: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).filter(visible).collect();
    if files.len() > KEY_FILES_MAX {
        return report.add(path, format!("has more than {KEY_FILES_MAX} files"), "");
    }
    for file in files {
        take_file(&file, path, keys, report);
    }
}

/// Hashes, one a line; empty lines and those that begin with a # do not count.
fn take_file(file: &Path, path: &str, keys: &mut Vec<KeyHash>, report: &mut Report) {
    let text = match text_of(file, report) {
        Ok(text) => text,
        Err(error) => return report.add(path, format!("a file of keys cannot be read: {error}"), ""),
    };
    for (index, line) in text.lines().map(str::trim).enumerate() {
        match line.parse() {
            _ if line.is_empty() || line.starts_with('#') => {}
            Ok(key) => keys.push(key),
            Err(()) => {
                let what = format!("line {} of a file of keys is not sha256: and 64 hexadecimal digits", index + 1);
                return report.add(path, what, "`warmgate hash-key` prints the line for a key");
            }
        }
    }
}

fn text_of(file: &Path, report: &mut Report) -> std::io::Result<String> {
    let bytes = report.files.read(file, KEY_FILE_BYTES_MAX)?;
    if bytes.len() as u64 > KEY_FILE_BYTES_MAX {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::parse;

    /// The problems of a text, its lines stripped of the file's name; empty where there are none.
    fn problems(text: &str, folder: &Path) -> String {
        let problems = parse(text, &folder.join("x.yaml")).err();
        problems
            .map(|problems| problems.to_string().replace(&format!("{}:", folder.join("x.yaml").display()), ""))
            .unwrap_or_default()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let text =
            text.replace("HASH1", &KeyHash::of("key-1").written()).replace("HASH2", &KeyHash::of("key-2").written());
        assert_eq!(problems(&text, Path::new("")), expected, "{text}");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_key() {
        check("tenants: []", "");
        check("tenants: [{name: a, keys: [\"HASH1\"]}]", "");
        check(
            "tenants: [{name: a}]",
            "1: tenants[0]: has no key, so nobody can be it; make one with `openssl rand -hex 32`, and its line here with `warmgate hash-key`",
        );
        let form = "expected sha256: and 64 hexadecimal digits, or {file: PATH}, never the key itself; `warmgate hash-key` prints the line for a key";
        let none = "has no key, so nobody can be it; make one with `openssl rand -hex 32`, and its line here with `warmgate hash-key`";
        check(
            "tenants: [{name: a, keys: [hunter2]}]",
            &format!("1: tenants[0].keys[0]: {form}\n1: tenants[0]: {none}"),
        );
        check(
            "tenants: [{name: a, keys: [\"HASH1\"]}, {name: a, keys: [\"HASH1\", \"HASH2\"]}]",
            "1: tenants[1].name: the same as tenants[0].name",
        );
        check(
            "tenants: [{name: a, keys: [\"HASH1\"]}, {name: b, keys: [\"HASH2\", \"HASH1\"]}]",
            "1: tenants[1].keys: has a key of tenant a; each key belongs to one tenant",
        );
        check(
            "tenants: [{name: a b, keys: [\"HASH1\"], models: [], limits: {rpm: 0}}]",
            "1: tenants[0].name: must be 1 to 64 visible ASCII characters without spaces; it goes into metrics and logs as it is\n1: tenants[0].models: has 0 items; write 1 to 256\n1: tenants[0].limits.rpm: must be from 1 to 10000000",
        );
    }

    #[test]
    fn well_known_keys_are_refused() {
        for key in ["sk-1234", "changeme", ""] {
            let text = format!("tenants: [{{name: a, keys: [\"{}\"]}}]", KeyHash::of(key).written());
            check(
                &text,
                "1: tenants[0].keys: has a key that stands in examples everywhere; make one with `openssl rand -hex 32`, and its line here with `warmgate hash-key`",
            );
        }
    }

    #[test]
    fn keys_come_from_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let hash = |key: &str| KeyHash::of(key).written();
        fs::create_dir(folder.path().join("keys")).unwrap();
        fs::write(folder.path().join("one"), format!("# of the gateway\n\n  {}\r\n", hash("key-1"))).unwrap();
        fs::write(folder.path().join("keys/a"), format!("{}\n{}", hash("key-2"), hash("key-3"))).unwrap();
        fs::write(folder.path().join("keys/.hidden"), "nothing").unwrap();
        let text = "tenants: [{name: a, keys: [{file: one}], keys_dir: keys}]";

        let plan = parse(text, &folder.path().join("x.yaml")).unwrap();

        assert_eq!(plan.tenants[0].keys, ["key-1", "key-2", "key-3"].map(KeyHash::of));
        fs::write(folder.path().join("keys/b"), format!("{}\nhunter2\n", hash("key-4"))).unwrap();
        let told = problems(text, folder.path());
        assert_eq!(
            told,
            "1: tenants[0].keys_dir: line 2 of a file of keys is not sha256: and 64 hexadecimal digits; `warmgate hash-key` prints the line for a key"
        );
        assert!(problems("tenants: [{name: a, keys_dir: none}]", folder.path()).contains("the folder cannot be read"));
    }
}
