//! Records that the test writes, without a name server; `tests/it/srv.rs` has one.

use std::io;

use async_trait::async_trait;

use super::*;

/// Hosts called after their addresses, such as `v10-0-0-1.test.`, and others that have none.
struct Zone;

#[async_trait]
impl Resolver for Zone {
    async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let ip = host.strip_prefix('v').and_then(|rest| rest.strip_suffix(".test."));
        let ip = ip.and_then(|ip| ip.replace('-', ".").parse().ok()).ok_or(io::ErrorKind::NotFound)?;
        Ok(vec![SocketAddr::new(ip, port)])
    }
}

fn records(written: &[(u16, &str, u16)]) -> Records {
    let target = |(priority, host, port): &(u16, &str, u16)| (*priority, Name::from_ascii(host).unwrap(), *port);
    Records::among(written.iter().map(target).collect())
}

#[track_caller]
fn check(records: &Records, expected: Result<(&[&str], &str), &str>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = runtime.block_on(records.lead_to(&Hosts::Here(Arc::new(Zone))));
    let shown = served.map(|served| {
        let addresses: Vec<String> = served.addresses.iter().map(SocketAddr::to_string).collect();
        (addresses, served.problem())
    });
    let expected = expected.map(|(addresses, problem)| {
        (addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), problem.to_owned())
    });
    assert_eq!(shown, expected.map_err(str::to_owned));
}

#[test]
fn the_lowest_priority_that_has_an_address_counts() {
    let all = [(10, "v10-0-0-1.test.", 8000), (10, "v10-0-0-1.test.", 8001), (20, "v10-0-0-2.test.", 8000)];
    check(&records(&all), Ok((&["10.0.0.1:8000", "10.0.0.1:8001"], "")));
    check(&records(&[(10, "gone.test.", 80), all[2]]), Ok((&["10.0.0.2:8000"], "")));
    check(
        &records(&[all[0], (10, "gone.test.", 80), all[2]]),
        Ok((&["10.0.0.1:8000"], "1 of the hosts in its SRV records have no address")),
    );
    check(&records(&[(10, "gone.test.", 80)]), Err("none of the hosts in its SRV records has an address"));
    check(&records(&[]), Err("its SRV records name no host"));
}

#[test]
fn a_host_with_addresses_of_both_versions_is_one_server() {
    let mut both = records(&[(0, "a.test.", 80), (0, "b.test.", 80)]);
    both.told
        .insert(Name::from_ascii("a.test.").unwrap(), vec!["fd00::1".parse().unwrap(), "10.0.0.1".parse().unwrap()]);
    both.told.insert(Name::from_ascii("b.test.").unwrap(), vec!["fd00::2".parse().unwrap()]);
    check(&both, Ok((&["10.0.0.1:80", "[fd00::2]:80"], "")));
}

#[test]
fn l8_records_are_bounded_and_the_lowest_priorities_are_kept() {
    let many: Vec<(u16, Name, u16)> = (0..10_000u16)
        .map(|n| (n % 7, Name::from_ascii(format!("h{n}.test.")).unwrap(), 80))
        .chain([(0, Name::from_ascii("a.test.").unwrap(), 80)])
        .collect();
    let records = Records::among(many);
    assert!(records.are_too_many);
    assert_eq!(records.by_priority.keys().collect::<Vec<_>>(), [&0], "all of the lowest");
    assert_eq!(records.by_priority[&0].len(), RECORDS_MAX);
}

#[test]
fn whom_this_machine_asks_stands_in_its_file() {
    let text =
        "# By hand.\nsearch example.test\nnameserver 127.0.0.53\nnameserver ::1\noptions timeout:30 attempts:9\n";
    let (config, mut options) = servers_of(text).expect("servers");
    let servers: Vec<String> = config.name_servers().iter().map(|server| server.ip.to_string()).collect();
    assert_eq!(servers, ["127.0.0.53", "::1"]);
    bound(&mut options);
    assert!(options.timeout <= TRY_MAX, "however patient the machine is: {:?}", options.timeout);
    for empty in ["", "search example.test\n", "nameserver\n", "nameserver nowhere\n"] {
        let why = servers_of(empty).expect_err("no servers");
        assert!(why.contains("no nameservers found"), "{empty:?}: {why}");
    }
}
