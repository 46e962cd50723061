//! Keeps the head of a request back until its body follows, so that both leave in one segment.
//!
//! Pingora sends a head as soon as it is written. An engine then wakes, finds no body and waits again, and each wake
//! costs more than all the bytes. Nothing depends on it: where it cannot be had the head goes out by itself, and the
//! kernel lets go of what is held back after 200 ms whatever happens (tcp(7), `TCP_CORK`).

use std::future::poll_fn;
use std::os::fd::RawFd;
use std::task::Poll;

/// In an upstream's socket, for one attempt.
#[derive(Clone, Copy, Debug)]
pub struct Cork(RawFd);

impl Cork {
    /// Into the socket of a connection that is open; `None`: it takes none.
    pub fn put_into(socket: RawFd) -> Option<Cork> {
        set(socket, true).then_some(Cork(socket))
    }

    /// Out again, once the other side of the exchange has had its turn to write the body. To be called while the
    /// connection is open.
    pub async fn pull(self) {
        let mut had_its_turn = false;
        // Not tokio's `yield_now`, which would let every other request go first.
        poll_fn(|context| match std::mem::replace(&mut had_its_turn, true) {
            true => Poll::Ready(()),
            false => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
        set(self.0, false);
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn set(socket: RawFd, is_corked: bool) -> bool {
    // Pingora lends the number alone. SAFETY: whoever calls holds the exchange, and with it the connection, open; and
    // were it another socket by now, that one's writes would be put together for a moment, and nothing else.
    let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(socket) };
    rustix::net::sockopt::set_tcp_cork(socket, is_corked).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn set(_: RawFd, _: bool) -> bool {
    false
}
