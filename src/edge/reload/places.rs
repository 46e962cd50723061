//! Where a change of a file shows: in the folder of the file, and in that of every link on the way to it.
//!
//! Editors and Kubernetes replace what a name stands for: the file under its name, or a link that leads to the
//! folder it is in. So names are watched in their folders, and not files.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many as Linux follows.
const LINKS_MAX: usize = 40;

/// The names, each in a folder that is no link, whose change can change what is read at `path`.
pub fn leading_to(path: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let Ok(path) = std::path::absolute(path) else { return names };
    let mut ahead: VecDeque<OsString> = parts(&path);
    let mut at = PathBuf::from("/");
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let here = at.join(part);
        let link = fs::read_link(&here).ok().filter(|_| names.len() < LINKS_MAX);
        let is_last = ahead.is_empty();
        match link {
            Some(target) => {
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                for part in parts(&target).into_iter().rev() {
                    ahead.push_front(part);
                }
                names.push(here);
            }
            None if is_last => names.push(here),
            None => at = here,
        }
    }
    names
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn check(folder: &Path, path: &str, expected: &[&str]) {
        let expected: Vec<PathBuf> = expected.iter().map(|name| folder.join(name)).collect();
        assert_eq!(leading_to(&folder.join(path)), expected, "{path}");
    }

    #[test]
    fn every_link_on_the_way_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("etc/..2026")).unwrap();
        fs::write(root.join("etc/..2026/c.yaml"), "").unwrap();
        symlink("..2026", root.join("etc/..data")).unwrap();
        symlink("..data/c.yaml", root.join("etc/c.yaml")).unwrap();
        symlink(root.join("etc"), root.join("conf")).unwrap();
        symlink("../loop", root.join("etc/loop")).unwrap();
        symlink("etc/loop", root.join("loop")).unwrap();

        check(&root, "etc/c.yaml", &["etc/c.yaml", "etc/..data", "etc/..2026/c.yaml"]);
        check(&root, "conf/c.yaml", &["conf", "etc/c.yaml", "etc/..data", "etc/..2026/c.yaml"]);
        check(&root, "etc/..2026/c.yaml", &["etc/..2026/c.yaml"]);
        check(&root, "none/c.yaml", &["none/c.yaml"]);
        assert!(leading_to(&root.join("loop")).len() <= LINKS_MAX + 1);
    }
}
