//! The process: a Pingora server with the proxy, the admin port and the caretaker.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::HttpServerOptions;
use pingora_core::protocols::http::v2::server::default_h2_options;
use pingora_core::server::configuration::{Opt, ServerConf};
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::ServiceWithDependents;
use pingora_core::services::background::background_service;
use pingora_core::services::listening::Service;
use pingora_proxy::{HttpProxy, http_proxy};
use thiserror::Error;

use super::address::Address;
use super::admin::Admin;
use super::caretaker::Caretaker;
use super::descriptors;
use super::door::Door;
use super::gateway::Gateway;
use super::ingress::Ingress;
use super::reload::{Attentive, Reloader, Source};
use super::shutdown;
use crate::config::Plan;

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: {why}")]
    Listen { address: SocketAddr, why: io::Error },
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What is started besides what the plan says.
#[derive(Default)]
pub struct Beside {
    /// Services that must be up before the first look at the fleet.
    pub services: Vec<Box<dyn ServiceWithDependents>>,
    pub simulated: bool,
    /// Where the plan came from; `None`: from no file, and there is nothing to read again.
    pub source: Option<Source>,
    /// Printed when everything is up, after the addresses.
    pub greeting: Option<fn(&Ingress, SocketAddr) -> String>,
}

/// Idle HTTP/2 clients are sent away after this; without it they stay for ever.
const H2_IDLE_MAX: Duration = Duration::from_secs(600);

/// HTTP/2 flow control window a stream and connection: a 20 MB body at the default of 64 KiB would
/// need 300 round trips.
const H2_WINDOW_BYTES: u32 = 2 << 20;

/// Idle upstream connections kept, for each thread.
const UPSTREAM_POOL: usize = 256;

/// Pingora's own count of attempts; ours is `resilience.attempts`, plus stale connections.
const PINGORA_ATTEMPTS: usize = 32;

/// Serves until told to stop.
pub fn serve(plan: Plan, beside: Beside) -> Result<(), ServeError> {
    let listen: Vec<Address> = plan.listen.iter().map(|listen| claim(listen.address)).collect::<Result<_, _>>()?;
    let admin_at = claim(plan.admin.address)?;
    let is_open = plan.tenants.is_empty();
    for open in listen.iter().filter(|listen| is_open && !listen.address.ip().is_loopback()) {
        log::warn!("{} is reachable from other machines, and whoever reaches it may use every model", open.address);
    }
    let connections_max = descriptors::claim();
    let mut ingress = Ingress::new(plan)?;
    ingress.simulated = beside.simulated;
    let ingress = Arc::new(ingress);
    let reloader = Arc::new(Reloader::new(ingress.clone(), beside.source));

    let mut server = Server::new_with_opt_and_conf(Opt::default(), server_conf(&ingress.plan()));
    let boot = server.bootstrap_as_a_service();
    let before: Vec<_> = beside.services.into_iter().map(|service| server.add_boxed_service(service)).collect();
    let announcement = Announcement {
        listen: listen.iter().map(|address| address.address).collect(),
        admin: admin_at.address,
        greeting: beside.greeting,
    };
    let caretaker = Caretaker::new(ingress.clone()).when_ready(move |ingress| announcement.clone().spawn(ingress));
    let caretaker = server.add_service(background_service("caretaker", caretaker));
    before.iter().for_each(|service| caretaker.add_dependency(service));

    let proxy = server.add_service(proxy_service(&server.configuration, &ingress, &listen, connections_max));
    let mut admin = Service::new("admin".into(), Admin { ingress: ingress.clone(), reloader: reloader.clone() });
    admin.add_tcp_with_settings(&admin_at.address.to_string(), admin_at.options());
    let admin = server.add_service(admin);
    server.add_service(background_service("reload", Attentive(reloader)));
    for service in [&proxy, &admin] {
        service.add_dependency(&boot);
        service.add_dependency(&caretaker);
    }
    shutdown::leave_when_idle(server.watch_execution_phase(), ingress.clone()).map_err(ServeError::Thread)?;
    server.run(RunArgs { shutdown_signal: Box::new(shutdown::Signals) });
    Ok(())
}

fn claim(address: SocketAddr) -> Result<Address, ServeError> {
    Address::claim(address).map_err(|why| ServeError::Listen { address, why })
}

fn server_conf(plan: &Plan) -> ServerConf {
    ServerConf {
        threads: plan.server.worker_threads(),
        // Longer than any that may be configured: `shutdown` keeps to the one in force when it comes to it.
        grace_period_seconds: Some(shutdown::GRACE_MAX_S),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: UPSTREAM_POOL,
        max_retries: PINGORA_ATTEMPTS,
        ..ServerConf::default()
    }
}

fn proxy_service(
    conf: &Arc<ServerConf>,
    ingress: &Arc<Ingress>,
    listen: &[Address],
    connections_max: usize,
) -> Service<Door<HttpProxy<Gateway>>> {
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    options.h2_idle_timeout = Some(H2_IDLE_MAX);
    let mut proxy = http_proxy(conf, Gateway::new(ingress.clone()));
    proxy.server_options = Some(options);
    let mut h2 = default_h2_options();
    h2.initial_window_size(H2_WINDOW_BYTES).initial_connection_window_size(H2_WINDOW_BYTES);
    proxy.h2_options = Some(h2);
    let mut service = Service::new("proxy".into(), Door::new(proxy, connections_max, ingress.clone()));
    for address in listen {
        service.add_tcp_with_settings(&address.address.to_string(), address.options());
    }
    service
}

/// What is printed once clients can be served.
#[derive(Clone)]
struct Announcement {
    listen: Vec<SocketAddr>,
    admin: SocketAddr,
    greeting: Option<fn(&Ingress, SocketAddr) -> String>,
}

/// The listeners come up just after the caretaker is ready; they are waited for this long.
const LISTENING_MAX: Duration = Duration::from_secs(10);

impl Announcement {
    fn spawn(self, ingress: &Ingress) {
        let readiness = ingress.readiness();
        let greeting = self.greeting.zip(self.listen.first()).map(|(greeting, address)| greeting(ingress, *address));
        tokio::spawn(async move {
            for address in self.listen.iter().chain([&self.admin]) {
                let _ = tokio::time::timeout(LISTENING_MAX, listening(*address)).await;
            }
            for address in &self.listen {
                println!("warmgate: listening on http://{address}");
            }
            println!("warmgate: admin on http://{}", self.admin);
            match readiness {
                Ok(()) => println!("warmgate: ready"),
                Err(reason) => println!("warmgate: not ready: {reason}"),
            }
            if let Some(greeting) = greeting {
                println!("{greeting}");
            }
        });
    }
}

/// Comes back once something accepts connections there.
async fn listening(mut address: SocketAddr) {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    while tokio::net::TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
