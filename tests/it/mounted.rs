//! Warmgate as a module: its proxy, and its selection alone, in somebody else's Pingora server.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::listeners::TcpSocketOptions;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::services::background::background_service;
use pingora_load_balancing::discovery::ServiceDiscovery;
use pingora_load_balancing::{Backend, Backends, LoadBalancer};
use pingora_proxy::http_proxy_service;
use tokio::net::TcpSocket;
use warmgate::config::{Plan, Upstream as Planned};
use warmgate::edge::selection::{Seat, key_of};
use warmgate::edge::shared_fleet::SharedFleet;
use warmgate::engines;
use warmgate::routing::ask::{Ask, Endpoint};
use warmgate::routing::fleet::{Rules, UpstreamId};
use warmgate::routing::report::{ModelReport, Report};
use warmgate::routing::select::Query;
use warmgate::routing::upstream::Spec;
use warmgate::wire::peek::peek;
use warmgate::{Caretaker, FleetSelection, Gateway, Ingress};

use crate::client::Conn;
use crate::rig::node;
use crate::talk::{Dialect, Talk};

#[tokio::test]
async fn the_gateway_serves_in_a_foreign_server() {
    let node = node("n1").await;
    let url = node.url().parse().expect("a URL");
    let plan = Plan { upstreams: vec![Planned::new("n1".into(), url)], ..Plan::default() };
    let ingress = Arc::new(Ingress::new(plan).expect("an ingress"));
    let at = mount(ingress);

    let mut reply = connect(at).await.exchange(&Talk::about(Dialect::Ollama, "moss").ask()).await;

    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-fleet-node"), Some("n1"));
    reply.whole().await;
}

/// Serves over an ingress in a server of this process; the address for clients.
pub fn mount(ingress: Arc<Ingress>) -> SocketAddr {
    // A port of our own, bound and not listened on, until Pingora binds it as well.
    let reservation = TcpSocket::new_v4().expect("a socket");
    reservation.set_reuseport(true).expect("SO_REUSEPORT");
    reservation.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let at = reservation.local_addr().expect("an address");
    thread::spawn(move || {
        let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
        server.bootstrap();
        let mut proxy = http_proxy_service(&server.configuration, Gateway::new(ingress.clone()));
        let mut options = TcpSocketOptions::default();
        options.so_reuseport = Some(true);
        proxy.add_tcp_with_settings(&at.to_string(), options);
        let _reservation = reservation;
        let proxy = server.add_service(proxy);
        proxy.add_dependency(server.add_service(background_service("fleet", Caretaker::new(ingress))));
        server.run_forever();
    });
    at
}

/// The server is not told when it listens; it is asked until it does.
pub async fn connect(at: SocketAddr) -> Conn {
    for _ in 0..500 {
        if tokio::net::TcpStream::connect(at).await.is_ok() {
            return Conn::open(at).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing listens on {at}");
}

#[tokio::test]
async fn the_selection_alone_balances_foreign_backends() {
    let fleet = Arc::new(SharedFleet::new(Rules::default()));
    let ids = ["cold", "warm"].map(|name| join(&fleet, name, name == "warm"));
    let discovery = Seats { fleet: fleet.clone(), ids };
    let balancer = LoadBalancer::<FleetSelection>::from_backends(Backends::new(Box::new(discovery)));
    balancer.update().await.expect("an update");
    let body = br#"{"model": "moss:7b", "messages": [{"role": "user", "content": "hello"}]}"#;
    let ask: Ask = peek(body, Endpoint::OllamaChat).expect("an ask").ask;

    let key = key_of(&Query { ask, tried: vec![], request: 17 });
    let best = balancer.select(&key, 10).expect("a backend");
    let second = balancer.select_with(&key, 10, |backend, _| *backend != best).expect("another");

    let upstream = |backend: &Backend| Seat::of(backend).expect("a seat").upstream;
    assert_eq!(upstream(&best), ids[1], "the one that has the model in memory");
    assert_eq!(upstream(&second), ids[0]);
    assert!(balancer.select(b"no query", 10).is_none());
}

struct Seats {
    fleet: Arc<SharedFleet>,
    ids: [UpstreamId; 2],
}

#[async_trait]
impl ServiceDiscovery for Seats {
    async fn discover(&self) -> pingora_core::Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let seat = |id| Seat { upstream: id, fleet: self.fleet.clone() };
        let address = "127.0.0.1:9".parse().expect("an address");
        Ok((self.ids.map(|id| seat(id).backend(address)).into(), HashMap::new()))
    }
}

fn join(fleet: &SharedFleet, name: &str, resident: bool) -> UpstreamId {
    let spec = Spec { engine: engines::find("ollama").map(|engine| engine.traits()), ..Spec::named(name) };
    let model = ModelReport { name: "moss:7b".into(), resident, ..ModelReport::default() };
    fleet.with(|fleet, now| {
        let id = fleet.join(spec).expect("room");
        fleet.learn_health(id, true, now);
        let report = Report { models: vec![model], ..Report::default() };
        fleet.learn_report(id, &report, fleet.asked(id, now), now);
        id
    })
}
