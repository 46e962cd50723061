//! A client who behaves, beside one who does not: it asks again and again, each time over a connection of its own,
//! and is served every time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::client::{Conn, Request};
use crate::gate::Gate;

/// An answer that comes later was held up by somebody. Far above what a loaded machine needs.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);

pub struct Bystander {
    stop: Arc<AtomicBool>,
    asking: JoinHandle<usize>,
    bytes_before: u64,
}

impl Bystander {
    pub async fn of(gate: &Gate) -> Bystander {
        Bystander::at(gate, gate.address(), Request::get("/api/tags")).await
    }

    /// One of the admin port.
    pub async fn of_admin(gate: &Gate) -> Bystander {
        Bystander::at(gate, gate.admin_address(), Request::get_as("localhost", "/help")).await
    }

    async fn at(gate: &Gate, address: SocketAddr, request: Request) -> Bystander {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let asking = tokio::spawn(async move {
            let mut served = 0;
            while !stops.load(Ordering::Relaxed) || served < 3 {
                let began = Instant::now();
                let reply = Conn::open(address).await.exchange(&request).await;
                assert_eq!(reply.status, 200, "the bystander's answer {served}");
                assert!(began.elapsed() < ANSWER_MAX, "the bystander waited {:?}", began.elapsed());
                served += 1;
                tokio::time::sleep(PAUSE).await;
            }
            served
        });
        Bystander { stop, asking, bytes_before: gate.memory_bytes() }
    }

    /// Ends it; that it was always served is the assertion.
    pub async fn was_served(self) {
        self.stop.store(true, Ordering::Relaxed);
        let served = self.asking.await.expect("a bystander who is served");
        assert!(served >= 3);
    }

    /// That the gate holds no more than so many bytes beyond what it held at first.
    pub fn saw_memory_grow_at_most(&self, gate: &Gate, bytes: u64) {
        let grown = gate.memory_bytes().saturating_sub(self.bytes_before);
        assert!(grown <= bytes, "{grown} bytes more than before");
    }
}
