//! The addresses that are listened on, opened before anything starts.
//!
//! Pingora retries a taken port for half a minute and then panics; here it is a plain error at once. Whoever
//! connects before the fleet is known waits and is not refused. The sockets are kept beside Pingora's own
//! handles on them, so that a successor can be given them; `Addresses::close` lets go of them when the
//! process stops.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::{L4BufferSettings, ListenerConfig};
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service as PingoraService;
use pingora_core::services::listening::Service;

/// Read ahead of a client who speaks plainly, held for as long as its connection: a head with a small body, and Pingora's
/// own first read. What is larger than that goes past it in pieces of 64 KiB. Pingora's default is 64 KiB for each.
const READ_AHEAD_BYTES: usize = 4 << 10;

/// With TLS, which reads in small steps: one record.
const READ_AHEAD_SECURED_BYTES: usize = 16 << 10;

/// An address that is listened on.
pub struct Address {
    pub address: SocketAddr,
    /// As it stands in the configuration: its port may be 0, for any that is free.
    pub written: SocketAddr,
    pub socket: TcpListener,
}

/// Sockets that another process opened and that may be listened on instead of new ones.
pub type Inherited = Vec<Address>;

impl Address {
    /// Takes the socket for that address over, or opens one.
    pub fn open(written: SocketAddr, inherited: &mut Inherited) -> io::Result<Address> {
        let is_it = |other: &Address| other.written == written || (other.address == written && written.port() != 0);
        let socket = match inherited.iter().position(is_it) {
            Some(index) => inherited.remove(index).socket,
            None => TcpListener::bind(written)?,
        };
        socket.set_nonblocking(true)?;
        Ok(Address { address: socket.local_addr()?, written, socket })
    }

    /// Another handle on the same socket, with the name that Pingora knows it by.
    pub fn handle(&self) -> io::Result<(String, OwnedFd)> {
        Ok((self.address.to_string(), self.socket.try_clone()?.into()))
    }
}

/// All addresses of the process.
#[derive(Clone, Default)]
pub struct Addresses(Arc<Mutex<Vec<Address>>>);

impl Addresses {
    pub fn add(&self, address: Address) {
        self.0.lock().push(address);
    }

    pub fn with<T>(&self, work: impl FnOnce(&[Address]) -> T) -> T {
        work(&self.0.lock())
    }

    /// Lets go of the sockets: once Pingora has, too, whoever connects is refused, or is the successor's.
    pub fn close(&self) {
        self.0.lock().clear();
    }
}

/// A service whose sockets are open before it starts.
pub struct Opened<A> {
    pub service: Service<A>,
    sockets: Vec<(String, OwnedFd)>,
}

impl<A: ServerApp + Send + Sync + 'static> Opened<A> {
    pub fn new(name: &str, app: A) -> Opened<A> {
        Opened { service: Service::new(name.into(), app), sockets: Vec::new() }
    }

    pub fn listen(&mut self, address: &Address, secured: bool) -> io::Result<()> {
        let (name, socket) = address.handle()?;
        let read_ahead = if secured { READ_AHEAD_SECURED_BYTES } else { READ_AHEAD_BYTES };
        let buffers = L4BufferSettings::default().read(read_ahead);
        self.service.add_listener(ListenerConfig::tcp(&name).l4_buffer(buffers));
        self.sockets.push((name, socket));
        Ok(())
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> PingoraService for Opened<A> {
    async fn start_service(&mut self, fds: Option<ListenFds>, shutdown: ShutdownWatch, listeners_per_fd: usize) {
        if let Some(fds) = &fds {
            let mut fds = fds.lock();
            // Pingora takes these for sockets of a process before it, and closes them in the end.
            self.sockets.drain(..).for_each(|(name, socket)| fds.add(name, socket.into_raw_fd()));
        }
        PingoraService::start_service(&mut self.service, fds, shutdown, listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        PingoraService::name(&self.service)
    }

    fn threads(&self) -> Option<usize> {
        PingoraService::threads(&self.service)
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        PingoraService::listen_addresses(&self.service)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_said_at_once_and_a_handed_over_one_is_taken_over() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let first = Address::open(any, &mut Vec::new()).unwrap();
        let again = Address::open(first.address, &mut Vec::new());
        assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));

        let copy = || Address { address: first.address, written: any, socket: first.socket.try_clone().unwrap() };
        for wanted in [any, first.address] {
            let mut inherited = vec![copy()];
            assert_eq!(Address::open(wanted, &mut inherited).unwrap().address, first.address);
            assert!(inherited.is_empty());
        }
        let mut inherited = vec![copy()];
        let other: SocketAddr = "[::1]:0".parse().unwrap();
        assert_ne!(Address::open(other, &mut inherited).unwrap().address, first.address);
        assert_eq!(inherited.len(), 1, "nobody wants it");
    }
}
