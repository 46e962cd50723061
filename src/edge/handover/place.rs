//! Where the socket is that a successor asks at.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::config::Plan;

/// As configured, else in the user's runtime directory, named by the first client address. `None` where that
/// address has no port of its own: the name would lead to any of several processes.
pub fn place(plan: &Plan) -> io::Result<Option<PathBuf>> {
    if let Some(path) = &plan.server.upgrade_sock {
        return Ok(Some(path.clone()));
    }
    let Some(first) = plan.listen.first().filter(|listen| listen.address.port() != 0) else { return Ok(None) };
    let folder = runtime_folder();
    keep_private(&folder)?;
    Ok(Some(folder.join(format!("{}.sock", first.address))))
}

/// What systemd made for the service, what the session has, or one of our own.
fn runtime_folder() -> PathBuf {
    let named = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = geteuid();
    let of_user = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    // Several have colons in between.
    let of_service = env::var("RUNTIME_DIRECTORY").ok().and_then(|all| all.split(':').next().map(PathBuf::from));
    if let Some(folder) = of_service.filter(|path| path.is_absolute()) {
        return folder;
    }
    match named("XDG_RUNTIME_DIR").filter(|path| path.is_dir()) {
        Some(folder) => folder.join("warmgate"),
        None if user.is_root() => "/run/warmgate".into(),
        None if of_user.is_dir() => of_user.join("warmgate"),
        None => env::temp_dir().join(format!("warmgate-{}", user.as_raw())),
    }
}

/// Makes it if it is not there; refuses one that others could put a socket into.
fn keep_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("{} must be a folder that only this user can write to", folder.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("warmgate");
        keep_private(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        keep_private(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(keep_private(&folder).is_err());
        let link = outer.path().join("link");
        std::os::unix::fs::symlink(outer.path(), &link).unwrap();
        assert!(keep_private(&link).is_err());
    }
}
