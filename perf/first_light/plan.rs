//! What will be said and when: a function of the seed.
//!
//! A conversation opens with 2,000 tokens and grows by 300 a turn, of which 50 are the node's answer
//! and 250 the next question. It begins at a moment drawn evenly from the spread, and thinks before
//! each later turn for a time drawn from an exponential distribution. Four characters count as a
//! token, as in the simulated engine.

use std::time::Duration;

use crate::dice::Dice;

const CHARS_PER_TOKEN: usize = 4;
const OPENING_TOKENS: usize = 2_000;
const TURN_TOKENS: usize = 300;
/// Length of every answer.
pub const ANSWER_TOKENS: usize = 50;
const TURNS: usize = 6;
const THINK_MEAN_SECONDS: f64 = 3.0;

pub struct Plan {
    pub seed: u64,
    /// All conversations begin within this time. An opening takes a node one second of prefill: sixty
    /// at once are twenty seconds of queue on each node, and what is measured then is the queue.
    pub spread: Duration,
    pub conversations: Vec<Vec<Planned>>,
}

/// One turn: the pause before it, and what is said.
#[derive(Clone)]
pub struct Planned {
    pub pause: Duration,
    pub text: String,
}

impl Plan {
    pub fn new(seed: u64, conversations: usize, spread: Duration) -> Plan {
        let conversation = |number| {
            let mut dice = Dice::new(seed, number as u64);
            let opening =
                Planned { pause: spread.mul_f64(dice.share()), text: dice.text(OPENING_TOKENS * CHARS_PER_TOKEN) };
            let follow_ups = (1..TURNS).map(|_| follow_up(&mut dice));
            std::iter::once(opening).chain(follow_ups).collect()
        };
        Plan { seed, spread, conversations: (0..conversations).map(conversation).collect() }
    }
}

fn follow_up(dice: &mut Dice) -> Planned {
    Planned {
        pause: Duration::from_secs_f64(dice.pause(THINK_MEAN_SECONDS)),
        text: dice.text((TURN_TOKENS - ANSWER_TOKENS) * CHARS_PER_TOKEN),
    }
}
