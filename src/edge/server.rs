//! The process: a Pingora server with the proxy, the admin port and the caretaker.
//!
//! Its sockets are open before anything starts, its own or those of the process before it, which serves on
//! until this one can.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io, process};

use parking_lot::Mutex;
use pingora_core::apps::HttpServerOptions;
use pingora_core::protocols::http::v2::server::default_h2_options;
use pingora_core::server::configuration::{Opt, ServerConf};
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::ServiceWithDependents;
use pingora_core::services::background::background_service;
use pingora_proxy::{HttpProxy, http_proxy};
use thiserror::Error;

use super::address::{Address, Addresses, Inherited, Opened};
use super::admin::{Admin, Port};
use super::caretaker::Caretaker;
use super::descriptors;
use super::door::{Door, Terms};
use super::gateway::Gateway;
use super::handover::{self, Offer, Predecessor};
use super::ingress::Ingress;
use super::reload::{Attentive, Reloader, Source};
use super::securing::{Secured, Securing, keep_current};
use super::{outlet, shutdown, state_file};
use crate::config::{Listen, ListenTls, Plan};

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: {why}{}", hint_of(why))]
    Listen { address: SocketAddr, why: io::Error },
    #[error("cannot secure {address}: {why}")]
    Secure { address: SocketAddr, why: String },
    #[error("cannot take over from the running process at {}: {why}", path.display())]
    TakeOver { path: PathBuf, why: io::Error },
    #[error("{} belongs to a Warmgate that runs: give this one its own `server.upgrade_sock`, or use --upgrade", path.display())]
    Runs { path: PathBuf },
    #[error("{key} {}: {why}", path.display())]
    Place { key: &'static str, path: PathBuf, why: io::Error },
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn hint_of(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::AddrInUse => "; if that is another Warmgate, `warmgate run --upgrade` takes over from it",
        _ => "",
    }
}

/// What is started besides what the plan says.
#[derive(Default)]
pub struct Beside {
    /// Services that must be up before the first look at the fleet.
    pub services: Vec<Box<dyn ServiceWithDependents>>,
    pub simulated: bool,
    /// Nothing is counted, and no receipt kept; see `Ingress::observes`.
    pub unobserved: bool,
    /// Where the plan came from; `None`: from no file, and there is nothing to read again.
    pub source: Option<Source>,
    /// Printed when everything is up, after the addresses.
    pub greeting: Option<fn(&Ingress, SocketAddr) -> String>,
    /// Takes over from a process that serves, if there is one.
    pub upgrades: bool,
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

/// Connections to the admin port at once: a few people and what collects metrics.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// Serves until told to stop.
pub fn serve(plan: Plan, beside: Beside) -> Result<(), ServeError> {
    for (key, path) in [("state_file", &plan.state_file), ("server.pid_file", &plan.server.pid_file)] {
        let Some(path) = path else { continue };
        state_file::check_place(path).map_err(|why| ServeError::Place { key, path: path.clone(), why })?;
    }
    let place = place_of_handover(&plan);
    let mut before = Before::look(place.as_deref(), &plan, beside.upgrades)?;
    let mut inherited = before.sockets()?;
    let ports = Ports::open(&plan, &mut inherited)?;
    // What is in the old configuration only is the old process's until it stops.
    drop(inherited);
    let is_open = |listen: &&Listen| {
        let asks = !plan.tenants.is_empty() || asks_for_certificates(listen);
        !asks && !listen.address.ip().is_loopback()
    };
    for open in plan.listen.iter().filter(is_open) {
        log::warn!("{} is reachable from other machines, and whoever reaches it may use every model", open.address);
    }
    let terms = Terms { connections_max: descriptors::claim(), secured: ports.secured.clone() };
    let mut ingress = Ingress::new(plan)?;
    ingress.simulated = beside.simulated;
    ingress.observes = !beside.unobserved;
    let ingress = Arc::new(ingress);
    let reloader = Arc::new(Reloader::new(ingress.clone(), beside.source));

    let mut server = Server::new_with_opt_and_conf(Opt::default(), server_conf(&ingress.plan()));
    let boot = server.bootstrap_as_a_service();
    let first: Vec<_> = beside.services.into_iter().map(|service| server.add_boxed_service(service)).collect();
    let announcement = Announcement::of(&ports, beside.greeting);
    let offer = Offer { ingress: ingress.clone(), addresses: Addresses::default(), taken_over: Arc::default() };
    let (addresses, taken_over) = (offer.addresses.clone(), offer.taken_over.clone());

    let mut proxy = Opened::new("proxy", Door::new(proxy(&server.configuration, &ingress), terms, ingress.clone()));
    let connections = proxy.service.app_logic().map(|door| door.open.clone()).unwrap_or_default();
    for address in &ports.listen {
        let secured = ports.secured.at(address.address).is_some();
        proxy.listen(address, secured).map_err(|why| ServeError::Listen { address: address.address, why })?;
    }
    let terms = Terms { connections_max: ADMIN_CONNECTIONS_MAX, secured: ports.secured.clone() };
    let app = Admin { ingress: ingress.clone(), reloader: reloader.clone(), listeners: Default::default() };
    let mut admin = Opened::new("admin", Door::new(Port(app), terms, ingress.clone()));
    let secured = ports.secured.at(ports.admin.address).is_some();
    admin.listen(&ports.admin, secured).map_err(|why| ServeError::Listen { address: ports.admin.address, why })?;
    let securing = ports.securing.clone();
    ports.listen.into_iter().chain([ports.admin]).for_each(|address| addresses.add(address));

    let arrival = Arc::new(Mutex::new(Some((before, offer, place.clone()))));
    let recalling = arrival.clone();
    let caretaker = Caretaker::new(ingress.clone())
        .prepared(move |ingress| {
            if let Some((before, _, _)) = recalling.lock().as_mut() {
                before.recall(ingress);
            }
        })
        .when_ready(move |ingress| {
            if let Some((before, offer, place)) = arrival.lock().take() {
                before.relieve();
                be_succeeded(offer, place);
            }
            write_pid(ingress);
            tokio::spawn(keep_current(securing.clone()));
            announcement.clone().say(ingress);
        });
    let caretaker = server.add_service(background_service("caretaker", caretaker));
    first.iter().for_each(|service| caretaker.add_dependency(service));
    for service in [server.add_service(proxy), server.add_service(admin)] {
        service.add_dependency(&boot);
        service.add_dependency(&caretaker);
    }
    server.add_service(background_service("reload", Attentive(reloader)));
    let at_last = {
        let ingress = ingress.clone();
        Box::new(move || clean_up(&ingress, place.as_deref()))
    };
    let leaving = shutdown::Leaving { ingress: ingress.clone(), connections, at_last };
    shutdown::leave_when_idle(server.watch_execution_phase(), leaving).map_err(ServeError::Thread)?;
    server.run(RunArgs { shutdown_signal: Box::new(shutdown::Signals { ingress, addresses, taken_over }) });
    Ok(())
}

fn asks_for_certificates(listen: &Listen) -> bool {
    listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
}

/// The sockets of the process, and what secures them.
struct Ports {
    listen: Vec<Address>,
    admin: Address,
    secured: Secured,
    securing: Vec<Arc<Securing>>,
}

impl Ports {
    fn open(plan: &Plan, inherited: &mut Inherited) -> Result<Ports, ServeError> {
        let mut open = |address| Address::open(address, inherited).map_err(|why| ServeError::Listen { address, why });
        let listen: Vec<Address> = plan.listen.iter().map(|listen| open(listen.address)).collect::<Result<_, _>>()?;
        let admin = open(plan.admin.address)?;
        let mut ports = Ports { listen, admin, secured: Secured::default(), securing: Vec::new() };
        let of_clients =
            ports.listen.iter().map(|address| address.address).zip(plan.listen.iter().map(|l| l.tls.as_ref()));
        let all: Vec<(SocketAddr, Option<&ListenTls>)> =
            of_clients.chain([(ports.admin.address, plan.admin.tls.as_ref())]).collect();
        for (address, tls) in all {
            let Some(tls) = tls else { continue };
            let securing = Securing::open(tls).map_err(|why| ServeError::Secure { address, why })?;
            let securing = Arc::new(securing);
            ports.secured.add(address, securing.clone());
            ports.securing.push(securing);
        }
        Ok(ports)
    }
}

/// The process before this one, if there is one and it is to be taken over from.
struct Before {
    predecessor: Option<Predecessor>,
    path: PathBuf,
}

impl Before {
    fn look(place: Option<&Path>, plan: &Plan, upgrades: bool) -> Result<Before, ServeError> {
        let path = place.map(Path::to_path_buf).unwrap_or_default();
        let mut before = Before { predecessor: None, path };
        match place {
            Some(_) if upgrades => {
                before.predecessor = Predecessor::find(&before.path).map_err(|why| before.failed(why))?;
                if before.predecessor.is_none() {
                    log::info!("no process to take over from at {}; this one starts anew", before.path.display());
                }
            }
            Some(path) if plan.server.upgrade_sock.is_some() && handover::is_there(path) => {
                return Err(ServeError::Runs { path: path.to_path_buf() });
            }
            None if upgrades => log::warn!("without `server.upgrade_sock` there is nobody to take over from"),
            _ => {}
        }
        Ok(before)
    }

    fn sockets(&mut self) -> Result<Inherited, ServeError> {
        let taken = self.predecessor.as_mut().map(Predecessor::sockets).transpose();
        taken.map(Option::unwrap_or_default).map_err(|why| self.failed(why))
    }

    fn recall(&mut self, ingress: &Ingress) {
        let Some(predecessor) = &mut self.predecessor else {
            state_file::load(ingress);
            return;
        };
        let recalled = predecessor.state().map_err(state_file::StateError::from);
        match recalled.and_then(|bytes| state_file::recall(ingress, &bytes)) {
            Ok(restored) => state_file::tell("from the process before", restored),
            Err(why) => log::warn!("what the process before knew {why}; all begins anew"),
        }
    }

    fn relieve(self) {
        if let Some(Err(why)) = self.predecessor.map(Predecessor::relieve) {
            log::error!("the process before this one may still serve: {why}");
        }
    }

    fn failed(&self, why: io::Error) -> ServeError {
        ServeError::TakeOver { path: self.path.clone(), why }
    }
}

/// Without a place there is no taking over, and all else goes on.
fn place_of_handover(plan: &Plan) -> Option<PathBuf> {
    handover::place(plan).unwrap_or_else(|why| {
        log::info!("this process cannot be upgraded without a pause: {why}; see `server.upgrade_sock`");
        None
    })
}

fn be_succeeded(offer: Offer, place: Option<PathBuf>) {
    let Some(place) = place else { return };
    if let Err(why) = offer.make(&place) {
        log::warn!("this process cannot be upgraded without a pause: {}: {why}", place.display());
    }
}

fn write_pid(ingress: &Ingress) {
    let Some(path) = &ingress.plan().server.pid_file else { return };
    if let Err(why) = state_file::write(path, format!("{}\n", process::id()).as_bytes()) {
        log::error!("server.pid_file {} cannot be written: {why}", path.display());
    }
}

/// The last that a process does. What a successor has put in its place stays.
fn clean_up(ingress: &Ingress, place: Option<&Path>) {
    outlet::stderr().finish(outlet::AT_THE_END_MAX);
    if ingress.departure.has_successor() {
        return;
    }
    // Whatever fails has been said.
    let _ = state_file::save(ingress);
    let plan = ingress.plan();
    for path in plan.server.pid_file.as_deref().into_iter().chain(place) {
        let _ = fs::remove_file(path);
    }
}

fn server_conf(plan: &Plan) -> ServerConf {
    ServerConf {
        threads: plan.server.worker_threads(),
        // Longer than any that may be configured: `shutdown` keeps to the one in force when it comes to it.
        grace_period_seconds: Some(shutdown::PINGORA_GRACE_S),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: UPSTREAM_POOL,
        max_retries: PINGORA_ATTEMPTS,
        ..ServerConf::default()
    }
}

fn proxy(conf: &Arc<ServerConf>, ingress: &Arc<Ingress>) -> HttpProxy<Gateway> {
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    options.h2_idle_timeout = Some(H2_IDLE_MAX);
    let mut proxy = http_proxy(conf, Gateway::new(ingress.clone()));
    proxy.server_options = Some(options);
    let mut h2 = default_h2_options();
    h2.initial_window_size(H2_WINDOW_BYTES).initial_connection_window_size(H2_WINDOW_BYTES);
    proxy.h2_options = Some(h2);
    proxy
}

/// What is printed once clients can be served.
#[derive(Clone)]
struct Announcement {
    listen: Vec<(&'static str, SocketAddr)>,
    admin: (&'static str, SocketAddr),
    greeting: Option<fn(&Ingress, SocketAddr) -> String>,
}

impl Announcement {
    fn of(ports: &Ports, greeting: Option<fn(&Ingress, SocketAddr) -> String>) -> Announcement {
        let place = |address: &Address| {
            let scheme = if ports.secured.at(address.address).is_some() { "https" } else { "http" };
            (scheme, address.address)
        };
        Announcement { listen: ports.listen.iter().map(place).collect(), admin: place(&ports.admin), greeting }
    }

    fn say(self, ingress: &Ingress) {
        for (scheme, address) in &self.listen {
            println!("warmgate: listening on {scheme}://{address}");
        }
        println!("warmgate: admin on {}://{}", self.admin.0, self.admin.1);
        match ingress.readiness() {
            Ok(()) => println!("warmgate: ready"),
            Err(reason) => println!("warmgate: not ready: {reason}"),
        }
        if let Some((greeting, (_, address))) = self.greeting.zip(self.listen.first()) {
            println!("{}", greeting(ingress, *address));
        }
    }
}
