//! Names whose addresses the test decides.

use std::net::IpAddr;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;
use crate::config::{Plan, parse};
use crate::edge::ingress::Ingress;

/// What every name means now; `None`: no lookup works.
#[derive(Default)]
struct Zone(Mutex<Option<Vec<IpAddr>>>);

impl Zone {
    fn is(&self, ips: &[&str]) {
        *self.0.lock() = Some(ips.iter().map(|ip| ip.parse().unwrap()).collect());
    }

    fn fails(&self) {
        *self.0.lock() = None;
    }
}

#[async_trait]
impl Resolver for Zone {
    async fn lookup(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let ips = self.0.lock().clone().ok_or(io::ErrorKind::TimedOut)?;
        Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

fn ingress(upstream: &str, zone: &Arc<Zone>) -> Ingress {
    let upstreams = parse(&format!("upstreams: [{upstream}]"), "x".as_ref()).unwrap().upstreams;
    Ingress::with_resolver(Plan { upstreams, ..Plan::default() }, zone.clone()).unwrap()
}

/// Where Pingora's balancer would send requests after another round.
async fn seats(ingress: &Ingress) -> Vec<String> {
    ingress.balancer.update().await.unwrap();
    let backends = ingress.balancer.backends().get_backend();
    let mut seats: Vec<String> = backends.iter().map(|backend| backend.addr.to_string()).collect();
    seats.sort();
    seats
}

#[tokio::test]
async fn ops_04_a_discovered_name_s_rows_follow_its_addresses() {
    let zone = Arc::new(Zone::default());
    let ingress = ingress("{name: pool, url: 'http://pool.test:8000', engine: ollama, discover: dns}", &zone);
    assert_eq!(seats(&ingress).await, [""; 0], "unknown at the start, which stops nothing");
    let problem = ingress.roster.nodes().names()[0].problem.load();
    assert!(problem.starts_with("its host name does not resolve"), "{problem}");

    zone.is(&["10.0.0.7", "fd00::9"]);
    assert_eq!(seats(&ingress).await, ["10.0.0.7:8000", "[fd00::9]:8000"]);
    assert_eq!(*ingress.roster.nodes().names()[0].problem.load(), "");
    zone.is(&["fd00::9", "10.0.0.8"]);
    assert_eq!(seats(&ingress).await, ["10.0.0.8:8000", "[fd00::9]:8000"]);
    zone.fails();
    assert_eq!(seats(&ingress).await, ["10.0.0.8:8000", "[fd00::9]:8000"], "a failed lookup removes nothing");
    zone.is(&[]);
    assert_eq!(seats(&ingress).await, ["10.0.0.8:8000", "[fd00::9]:8000"], "nor does an empty one");
}

#[tokio::test]
async fn addresses_where_no_node_can_be_are_left_out() {
    let zone = Arc::new(Zone::default());
    let ingress = ingress("{name: pool, url: 'http://pool.test:11435', engine: ollama, discover: dns}", &zone);
    zone.is(&["10.0.0.7", "0.0.0.0", "127.0.0.1"]);
    assert_eq!(seats(&ingress).await, ["10.0.0.7:11435"]);
    let name = ingress.roster.nodes().names()[0].clone();
    assert!(name.problem.load().starts_with("2 of its 3 addresses are left out"), "{}", name.problem.load());
    zone.is(&["0.0.0.0"]);
    assert_eq!(seats(&ingress).await, ["10.0.0.7:11435"], "what was there stays");
}

#[tokio::test]
async fn ops_04_a_plain_name_leads_elsewhere() {
    let zone = Arc::new(Zone::default());
    let ingress = ingress("{name: n1, url: 'http://n1.test:8000', engine: ollama}", &zone);
    assert_eq!(seats(&ingress).await, [""; 0]);
    zone.is(&["127.0.0.2"]);
    assert_eq!(seats(&ingress).await, ["127.0.0.2:8000"], "it joins by itself");
    let node = ingress.roster.nodes().iter().next().unwrap().clone();
    node.standing.turned(false);
    zone.is(&["127.0.0.3"]);
    assert_eq!(seats(&ingress).await, ["127.0.0.3:8000"]);
    assert!(node.standing.is_unseen(), "what was held against the old address is void");
    zone.fails();
    assert_eq!(seats(&ingress).await, ["127.0.0.3:8000"]);
}

#[tokio::test]
async fn ops_05_an_address_that_refuses_is_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let zone = Arc::new(Zone::default());
    zone.is(&["::1", "127.0.0.1"]);
    let ingress = ingress(&format!("{{name: n1, url: 'http://n1.test:{port}', engine: ollama}}"), &zone);
    let began = Instant::now();
    assert_eq!(seats(&ingress).await, [format!("127.0.0.1:{port}")]);
    assert!(began.elapsed() < Duration::from_millis(300), "{:?}", began.elapsed());
}

#[tokio::test]
async fn ops_05_an_address_of_the_sixth_version_needs_no_name() {
    let zone = Arc::new(Zone::default());
    assert_eq!(seats(&ingress("{name: n1, url: 'http://[::1]:11434'}", &zone)).await, ["[::1]:11434"]);
}
