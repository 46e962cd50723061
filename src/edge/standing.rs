//! How a node stands with its health checks, and what makes a difference to that.
//!
//! Pingora counts checks in a row and knows healthy and not. A node that is new, whose connection was
//! refused or that loads has not failed: it is up with the first good check, without a count.

use parking_lot::Mutex;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// New, or a connection was refused since the last good check.
    #[default]
    Unseen,
    Up,
    Loading,
    /// Failed as many checks as take a node out.
    Out,
}

/// Every method returns whether that is news.
#[derive(Default)]
pub struct Standing(Mutex<State>);

impl Clone for Standing {
    fn clone(&self) -> Standing {
        Standing(Mutex::new(*self.0.lock()))
    }
}

impl Standing {
    pub fn is_loading(&self) -> bool {
        *self.0.lock() == State::Loading
    }

    /// A check was good.
    pub fn saw_up(&self) -> bool {
        self.turn(State::Up, |now| matches!(now, State::Unseen | State::Loading))
    }

    /// A check found it loading.
    pub fn saw_loading(&self) -> bool {
        self.turn(State::Loading, |now| now != State::Loading)
    }

    /// A connection was refused.
    pub fn saw_refusal(&self) -> bool {
        self.turn(State::Unseen, |now| now == State::Up)
    }

    /// No check has said anything yet, of this node or of what stands where it moved to.
    pub fn is_unseen(&self) -> bool {
        *self.0.lock() == State::Unseen
    }

    /// Requests go to another address now. Pingora counts anew there, so what was counted is void.
    pub fn saw_move(&self) -> bool {
        self.turn(State::Unseen, |now| now != State::Unseen)
    }

    /// So many checks in a row failed, or were good, that Pingora's opinion changed.
    pub fn turned(&self, healthy: bool) -> bool {
        match healthy {
            // To Pingora loading is as good as up; to requests it is not.
            true => self.turn(State::Up, |now| now != State::Loading),
            false => self.turn(State::Out, |_| true),
        }
    }

    fn turn(&self, to: State, from: impl Fn(State) -> bool) -> bool {
        let mut state = self.0.lock();
        let turns = from(*state);
        if turns {
            *state = to;
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_is_up_with_its_first_good_check() {
        let standing = Standing::default();
        assert!(standing.saw_up() && !standing.saw_up());
        assert!(standing.saw_refusal() && !standing.saw_refusal());
        assert!(standing.saw_up());
    }

    #[test]
    fn a_node_that_was_taken_out_needs_as_many_good_checks_as_configured() {
        let standing = Standing::default();
        assert!(standing.saw_up() && standing.turned(false));
        assert!(!standing.saw_up() && !standing.saw_refusal());
        assert!(standing.turned(true) && !standing.saw_up());
    }

    #[test]
    fn ops_04_what_stands_at_another_address_is_up_with_its_first_good_check() {
        let standing = Standing::default();
        assert!(standing.turned(false) && !standing.saw_up());
        assert!(standing.saw_move() && standing.is_unseen() && !standing.saw_move());
        assert!(standing.saw_up());
    }

    #[test]
    fn hlt_03_loading_is_neither_up_nor_a_failure() {
        let standing = Standing::default();
        assert!(standing.saw_up() && standing.turned(false));
        assert!(standing.saw_loading() && standing.is_loading() && !standing.saw_loading());
        assert!(!standing.turned(true) && !standing.saw_refusal() && standing.is_loading());
        assert!(standing.saw_up() && !standing.is_loading());
    }
}
