//! How many files and connections the system lets this process have open, and what that allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Below this it is said at the start: streams are long, and each takes two.
const ENOUGH: u64 = 4096;

/// For what is not a client's (logs, listeners, checks, the admin port), and for connections that are taken
/// only to be turned away: up to 128 in a row, and at the limit itself Pingora takes none for a second.
const RESERVE: u64 = 192;

/// Of a client: its own connection, and one to the node that answers it.
const PER_CLIENT: u64 = 2;

/// Takes as many as may be had, and gives the number of clients whose connections fit.
pub fn claim() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    let clients = clients(limit.current);
    if let Some(files) = limit.current.filter(|files| *files < ENOUGH) {
        log::warn!(
            "this process may open {files} files, enough for {clients} clients at once; more are turned away. \
             Raise it with `ulimit -n`, or LimitNOFILE= in a systemd unit"
        );
    }
    clients
}

/// At least one, however little there is.
fn clients(files: Option<u64>) -> usize {
    let Some(files) = files else { return usize::MAX };
    usize::try_from(files.saturating_sub(RESERVE) / PER_CLIENT).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_two_and_some_are_kept_for_us() {
        assert_eq!(clients(Some(256)), 32);
        assert_eq!(clients(Some(10)), 1);
        assert_eq!(clients(None), usize::MAX);
    }
}
