//! The addresses to listen on, made sure of before anything starts.
//!
//! Pingora retries a taken port for half a minute and then panics; here it is a plain error at once.
//! Port 0 is replaced by a free port, kept for us until Pingora listens on it.

use std::io;
use std::net::{SocketAddr, TcpListener};

use pingora_core::listeners::TcpSocketOptions;
use tokio::net::TcpSocket;

/// An address that can be listened on.
pub struct Address {
    pub address: SocketAddr,
    /// Holds the port that was found for port 0: bound but not listening, so it takes no connection.
    reservation: Option<TcpSocket>,
}

impl Address {
    pub fn claim(wanted: SocketAddr) -> io::Result<Address> {
        if wanted.port() != 0 {
            // Bound and let go: says whether the port is free without keeping it from Pingora.
            TcpListener::bind(wanted)?;
            return Ok(Address { address: wanted, reservation: None });
        }
        let socket = if wanted.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseport(true)?;
        socket.bind(wanted)?;
        Ok(Address { address: socket.local_addr()?, reservation: Some(socket) })
    }

    /// How Pingora is to bind it.
    pub fn options(&self) -> TcpSocketOptions {
        let mut options = TcpSocketOptions::default();
        options.so_reuseport = self.reservation.as_ref().map(|_| true);
        options
    }
}
