//! What is admitted, when, and what it is charged.

use proptest::prelude::*;

use super::*;
use crate::routing::ask::Endpoint;

fn limits(requests: Option<u32>, tokens: Option<u32>, concurrent: Option<u32>) -> Limits {
    Limits { requests_a_minute: requests, tokens_a_minute: tokens, concurrent }
}

fn at(seconds: f64) -> Moment {
    Moment((seconds * 1e6) as u64)
}

#[track_caller]
fn check_refused(result: Result<Booking, Refused>, over: Over, free_in_s: f64) {
    assert_eq!(result, Err(Refused { over, free_in: Some(Duration::from_secs_f64(free_in_s)) }));
}

#[test]
fn a_request_counts_for_a_minute_and_the_rest_of_its_second() {
    let (mut meter, limits) = (Meter::default(), limits(Some(2), None, None));
    let _ = meter.admit(&limits, 0, at(10.5)).unwrap();
    let _ = meter.admit(&limits, 0, at(20.0)).unwrap();
    check_refused(meter.admit(&limits, 0, at(30.0)), Over::Requests, 41.0);
    check_refused(meter.admit(&limits, 0, at(70.75)), Over::Requests, 0.25);
    let _ = meter.admit(&limits, 0, at(71.0)).unwrap();
    check_refused(meter.admit(&limits, 0, at(71.0)), Over::Requests, 10.0);
}

#[test]
fn nothing_is_booked_of_a_request_that_is_refused() {
    let (mut meter, limits) = (Meter::default(), limits(Some(2), Some(100), Some(1)));
    let first = meter.admit(&limits, 60, at(1.0)).unwrap();
    assert_eq!(meter.admit(&limits, 1, at(1.0)), Err(Refused { over: Over::Concurrent, free_in: None }));
    meter.settle(first, Used::AsBooked, at(2.0));
    check_refused(meter.admit(&limits, 41, at(3.0)), Over::Tokens, 59.0);
    assert_eq!(meter.used(at(3.0)), (1, 60, 0));
    let _ = meter.admit(&limits, 40, at(3.0)).unwrap();
    assert_eq!(meter.used(at(3.0)), (2, 100, 1));
}

#[test]
fn tokens_settle_to_what_was_used() {
    let (mut meter, limits) = (Meter::default(), limits(None, Some(1000), None));
    let less = meter.admit(&limits, 500, at(1.0)).unwrap();
    assert_eq!(meter.settle(less, Used::Tokens(120), at(5.0)), 120);
    assert_eq!(meter.used(at(5.0)).1, 120);
    let more = meter.admit(&limits, 100, at(6.0)).unwrap();
    assert_eq!(meter.settle(more, Used::Tokens(5000), at(30.0)), 5000);
    assert_eq!(meter.tokens_left(&limits, at(30.0)).unwrap().remaining, 0);
    // Of the long one its guess goes with the second of its start, the rest with that of its end.
    assert_eq!(meter.used(at(67.0)).1, 4900);
    assert_eq!(meter.used(at(91.0)).1, 0);
}

#[test]
fn what_is_given_back_after_its_minute_changes_nothing() {
    let (mut meter, limits) = (Meter::default(), limits(Some(5), Some(1000), Some(5)));
    let long = meter.admit(&limits, 500, at(1.0)).unwrap();
    let _ = meter.admit(&limits, 300, at(100.0)).unwrap();
    assert_eq!(meter.settle(long, Used::Nothing, at(101.0)), 0);
    assert_eq!(meter.used(at(101.0)), (1, 300, 1));
}

#[test]
fn a_request_larger_than_the_minute_takes_an_empty_one() {
    let (mut meter, limits) = (Meter::default(), limits(None, Some(100), None));
    let small = meter.admit(&limits, 1, at(0.0)).unwrap();
    check_refused(meter.admit(&limits, 900, at(1.0)), Over::Tokens, 60.0);
    meter.settle(small, Used::AsBooked, at(1.0));
    let large = meter.admit(&limits, 900, at(61.0)).unwrap();
    check_refused(meter.admit(&limits, 1, at(62.0)), Over::Tokens, 60.0);
    assert_eq!(meter.settle(large, Used::AsBooked, at(63.0)), 100);
}

#[test]
fn what_is_left_and_when_all_is_back() {
    let (mut meter, limits) = (Meter::default(), limits(Some(3), None, None));
    let left = |remaining, seconds| Some(Left { limit: 3, remaining, reset_in: Duration::from_secs(seconds) });
    assert_eq!(meter.requests_left(&limits, at(5.0)), left(3, 0));
    assert_eq!(meter.tokens_left(&limits, at(5.0)), None);
    let first = meter.admit(&limits, 0, at(5.0)).unwrap();
    let _second = meter.admit(&limits, 0, at(15.0)).unwrap();
    assert_eq!(meter.requests_left(&limits, at(20.0)), left(1, 56));
    meter.settle(first, Used::Nothing, at(20.0));
    assert_eq!(meter.requests_left(&limits, at(20.0)), left(2, 56));
}

#[test]
fn a_limit_that_was_lowered_holds_for_what_was_used_before() {
    let mut meter = Meter::default();
    for _ in 0..5 {
        let _ = meter.admit(&limits(Some(5), None, None), 0, at(1.0)).unwrap();
    }
    check_refused(meter.admit(&limits(Some(2), None, None), 0, at(2.0)), Over::Requests, 60.0);
    let _ = meter.admit(&limits(None, None, None), 0, at(2.0)).unwrap();
}

#[test]
fn guesses() {
    let check = |endpoint, max_output_tokens, expected| {
        let ask = Ask { max_output_tokens, prompt_tokens: 100, ..Ask::new(endpoint, "m".into()) };
        assert_eq!(tokens_guessed(&ask), expected, "{endpoint:?}");
    };
    check(Endpoint::OllamaChat, None, 612);
    check(Endpoint::OpenAiChat, Some(32), 132);
    check(Endpoint::AnthropicMessages, Some(0), 100);
    check(Endpoint::OpenAiEmbeddings, Some(32), 100);
}

proptest! {
    /// No sixty seconds see more requests than the limit, and nobody is refused while there is room.
    #[test]
    fn no_minute_sees_more_than_the_limit(
        limit in 1u32..20,
        gaps in prop::collection::vec(0u64..20_000_000, 1..200),
    ) {
        let (mut meter, limits) = (Meter::default(), limits(Some(limit), None, None));
        let (mut now, mut admitted) = (0u64, Vec::<u64>::new());
        for gap in gaps {
            now += gap;
            let counted = |window: u64| admitted.iter().filter(|at| **at + window > now).count();
            let (strict, lenient) = (counted(60_000_000), counted(61_000_000));
            match meter.admit(&limits, 0, Moment(now)) {
                Ok(_) => {
                    prop_assert!(strict < limit as usize);
                    admitted.push(now);
                }
                Err(refused) => {
                    prop_assert!(lenient >= limit as usize);
                    let free = Moment(now) + refused.free_in.unwrap();
                    prop_assert!(meter.clone().admit(&limits, 0, free).is_ok());
                }
            }
        }
    }

    /// Whatever is booked and given back, in whatever order, counts never go below what is there.
    #[test]
    fn what_counts_is_what_was_charged(steps in prop::collection::vec((0u64..90, 0u64..500, 0u64..900), 1..60)) {
        let (mut meter, open) = (Meter::default(), Limits::default());
        let mut now = 0;
        for (wait, guess, used) in steps {
            now += wait;
            let before = meter.used(Moment::from_secs(now)).1;
            let booking = meter.admit(&open, guess, Moment::from_secs(now)).unwrap();
            prop_assert_eq!(meter.settle(booking, Used::Tokens(used), Moment::from_secs(now)), used);
            prop_assert_eq!(meter.used(Moment::from_secs(now)), (meter.requests.sum, before + used, 0));
        }
    }
}

/// While the account of three replicas answers late, each goes on with its part of what was left.
#[test]
fn what_nobody_has_confirmed_stays_within_a_share() {
    let limits = Limits { requests_a_minute: Some(20), tokens_a_minute: Some(1000), ..Limits::default() };
    let now = Moment::from_secs(100);
    let let_in = |meter: &mut Meter, replicas: usize, tokens: u64| {
        let sharing = Sharing { replicas, place: 0, is_apart: false };
        let mut count = 0;
        loop {
            let Ok(booking) = meter.admit(&limits, tokens, now) else { return count };
            if meter.stands(&limits, &booking, sharing, now) != Standing::Fits {
                meter.settle(booking, Used::Nothing, now);
                return count;
            }
            count += 1;
        }
    };
    assert_eq!([let_in(&mut Meter::default(), 1, 1), let_in(&mut Meter::default(), 3, 1)], [20, 7]);

    let mut known = Meter::default();
    known.learn_used(14, 140, Some(0), now);
    assert_eq!(let_in(&mut known.clone(), 3, 1), 2, "of the six that were left");
    known.learn_used(20, 140, Some(0), now);
    assert_eq!(let_in(&mut known, 3, 1), 0);

    // One is never too large for its share, of two one is.
    assert_eq!(let_in(&mut Meter::default(), 3, 900), 1);

    // What the account has confirmed is no longer of the share.
    let mut meter = Meter::default();
    assert_eq!(let_in(&mut meter, 3, 1), 7);
    let seven = Booked { requests_add: 7, tokens_add: 7, ..Booked::default() };
    assert_eq!(meter.learn_booked(1, seven, now, now), []);
    meter.learn_used(7, 7, Some(0), now);
    assert_eq!(let_in(&mut meter, 3, 1), 5, "of the thirteen that are left");
}

/// Shares of all replicas add up to what is left, and whoever has none may ask the account, or works for itself if it
/// cannot.
#[test]
fn shares_add_up_to_what_is_left() {
    let now = Moment::from_secs(100);
    let stands = |limits: &Limits, meter: &mut Meter, sharing: Sharing| {
        let booking = meter.admit(limits, 1, now).expect("room here");
        let standing = meter.stands(limits, &booking, sharing, now);
        if standing != Standing::Fits {
            meter.settle(booking, Used::Nothing, now);
        }
        standing
    };
    for (limits, limit) in [
        (Limits { requests_a_minute: Some(5), ..Limits::default() }, 5),
        (Limits { concurrent: Some(5), ..Limits::default() }, 5),
    ] {
        for replicas in 1..8 {
            let (mut all, mut apart) = (0, 0);
            for place in 0..replicas {
                let near = Sharing { replicas, place, is_apart: false };
                let mut meter = Meter::default();
                all += (0..5).filter(|_| stands(&limits, &mut meter, near) == Standing::Fits).count();
                let far = Sharing { is_apart: true, ..near };
                let mut meter = Meter::default();
                apart += (0..5).filter(|_| stands(&limits, &mut meter, far) == Standing::Fits).count();
            }
            assert_eq!((all, apart), (limit, limit.max(replicas)), "{replicas} replicas, {limits:?}");
        }
    }
    let limits = Limits { requests_a_minute: Some(2), ..Limits::default() };
    let last = Sharing { replicas: 3, place: 2, is_apart: false };
    let mut meter = Meter::default();
    assert!(matches!(stands(&limits, &mut meter, last), Standing::Beyond(_)));
    meter.learn_used(2, 2, Some(0), now);
    assert!(matches!(stands(&limits, &mut meter, last), Standing::Over(_)), "nothing is left");
    let apart = Sharing { is_apart: true, ..last };
    assert!(matches!(stands(&limits, &mut meter, apart), Standing::Over(_)), "nor for whoever is apart");
}

/// What a replica has not heard of it takes for left: so all together let in less than twice the limit.
#[test]
fn whoever_heard_nothing_goes_beyond_the_limit_by_its_share_and_no_more() {
    const LIMIT: u32 = 21;
    let limits = Limits { requests_a_minute: Some(LIMIT), ..Limits::default() };
    let now = Moment::from_secs(100);
    let let_in = |meter: &mut Meter, sharing: Sharing| {
        let fits = |_: &u32| {
            let Ok(booking) = meter.admit(&limits, 1, now) else { return false };
            let fits = meter.stands(&limits, &booking, sharing, now) == Standing::Fits;
            if !fits {
                meter.settle(booking, Used::Nothing, now);
            }
            fits
        };
        (0..2 * LIMIT).filter(fits).count() as u32
    };
    for replicas in 1..8 {
        let sharing = |place| Sharing { replicas, place, is_apart: false };
        // The first has used all of it, and is alone in knowing.
        let mut knows = Meter::default();
        let all = Booked { requests_add: u64::from(LIMIT), tokens_add: u64::from(LIMIT), ..Booked::default() };
        knows.learn_booked(1, all, now, now);
        knows.learn_used(u64::from(LIMIT), u64::from(LIMIT), Some(0), now);
        assert_eq!(let_in(&mut knows, sharing(0)), 0);
        let beyond: u32 = (1..replicas).map(|place| let_in(&mut Meter::default(), sharing(place))).sum();
        assert_eq!(beyond, LIMIT - LIMIT.div_ceil(replicas as u32), "{replicas} replicas");

        let mut heard = Meter::default();
        heard.learn_used(u64::from(LIMIT), u64::from(LIMIT), Some(0), now);
        assert_eq!(let_in(&mut heard, sharing(replicas - 1)), 0, "one word of the account is enough");
    }
}

/// Who is refused by the account is told that nothing is left.
#[test]
fn what_is_left_counts_what_was_booked_here_once() {
    let limits = Limits { requests_a_minute: Some(3), ..Limits::default() };
    let now = Moment::from_secs(100);
    let mut meter = Meter::default();
    for _ in 0..2 {
        let _running = meter.admit(&limits, 1, now).expect("room");
        meter.learn_booked(1, Booked { requests_add: 1, ..Booked::default() }, now, now);
    }
    let refused = meter.admit(&limits, 1, now).expect("room here");
    meter.learn_used(3, 3, Some(0), now);
    meter.settle(refused, Used::Nothing, now);
    assert_eq!(meter.requests_left(&limits, now).map(|left| left.remaining), Some(0));
}
