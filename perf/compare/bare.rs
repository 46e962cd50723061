//! A Pingora proxy that reads nothing and passes on everything, over the same upstreams in turn.
//!
//! What is left between it and Warmgate is what Warmgate adds. Same profile, same allocator, same pool.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clap::Parser;
use pingora_core::Result;
use pingora_core::server::Server;
use pingora_core::server::configuration::{Opt, ServerConf};
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    port: u16,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Ports of the upstreams on this machine.
    upstreams: Vec<u16>,
}

struct Bare {
    upstreams: Vec<SocketAddr>,
    next: AtomicUsize,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        let n = self.next.fetch_add(1, Ordering::Relaxed) % self.upstreams.len();
        let mut peer = HttpPeer::new(self.upstreams[n], false, String::new());
        peer.options.idle_timeout = Some(Duration::from_secs(4));
        Ok(Box::new(peer))
    }
}

fn main() {
    let arguments = Arguments::parse();
    let loopback = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let bare =
        Bare { upstreams: arguments.upstreams.iter().copied().map(loopback).collect(), next: AtomicUsize::new(0) };
    let conf = ServerConf { threads: arguments.threads, upstream_keepalive_pool_size: 256, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(Opt::default(), conf);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, bare);
    proxy.add_tcp(&loopback(arguments.port).to_string());
    server.add_service(proxy);
    server.run_forever();
}
