//! Faults on demand, so that tests and load runs can see an ingress cope with them.
//!
//! A node behaves until it is told otherwise. Faults strike requests for a model; lists and versions
//! are answered as ever, as those of a sick engine mostly are. Only `refuse` strikes connections.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "behave", rename_all = "snake_case")]
pub enum Behaviour {
    #[default]
    None,
    /// Resets new connections. For a refused connection, stop the node.
    Refuse,
    /// Takes the request and never answers.
    Hang,
    /// Answers with an error, 400 to 599.
    Status { status: u16 },
    /// Cuts the connection after so many chunks of the answer, without its end.
    Die { after_chunks: u32 },
    /// Takes so many times as long.
    Crawl { times: f64 },
    /// Takes the request and closes before the first byte of an answer.
    Close,
}

/// How to behave, and for how many requests (or connections): `None` is for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    #[serde(flatten)]
    pub behaviour: Behaviour,
    #[serde(default)]
    pub next: Option<u32>,
}

impl From<Behaviour> for Order {
    fn from(behaviour: Behaviour) -> Order {
        let next = None;
        Order { behaviour, next }
    }
}

/// The order in force.
#[derive(Default)]
pub struct Mood(Mutex<Order>);

impl Mood {
    pub fn set(&self, order: Order) {
        *self.0.lock() = order;
    }

    /// Whether to reset the connection that has just come.
    pub fn refuses_connection(&self) -> bool {
        let mut order = self.0.lock();
        order.behaviour == Behaviour::Refuse && order.count_down()
    }

    /// What to do with the request that has just come.
    pub fn for_request(&self) -> Behaviour {
        let mut order = self.0.lock();
        let behaviour = order.behaviour;
        if behaviour == Behaviour::Refuse || !order.count_down() {
            return Behaviour::None;
        }
        behaviour
    }
}

impl Order {
    /// Whether the order still holds; the last time it is used, it ends.
    fn count_down(&mut self) -> bool {
        let Some(next) = self.next else {
            return true;
        };
        let left = next.saturating_sub(1);
        self.next = Some(left);
        if left == 0 {
            *self = Order::default();
        }
        next > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, behaviour: Behaviour, next: Option<u32>) {
        let order: Order = serde_json::from_str(text).unwrap();
        assert_eq!(order, Order { behaviour, next });
    }

    #[test]
    fn orders_are_written_in_json() {
        check(r#"{"behave":"none"}"#, Behaviour::None, None);
        check(r#"{"behave":"hang","next":2}"#, Behaviour::Hang, Some(2));
        let status = Behaviour::Status { status: 503 };
        check(r#"{"behave":"status","status":503}"#, status, None);
        let die = Behaviour::Die { after_chunks: 3 };
        check(r#"{"behave":"die","after_chunks":3,"next":1}"#, die, Some(1));
        assert!(serde_json::from_str::<Order>(r#"{"behave":"dance"}"#).is_err());
    }

    #[test]
    fn an_order_for_two_requests_ends_after_two() {
        let mood = Mood::default();
        mood.set(Order { behaviour: Behaviour::Hang, next: Some(2) });
        let seen: Vec<_> = (0..3).map(|_| mood.for_request()).collect();
        assert_eq!(seen, [Behaviour::Hang, Behaviour::Hang, Behaviour::None]);
    }

    #[test]
    fn refusing_strikes_connections_only() {
        let mood = Mood::default();
        mood.set(Behaviour::Refuse.into());
        assert_eq!(mood.for_request(), Behaviour::None);
        assert!(mood.refuses_connection());
    }
}
