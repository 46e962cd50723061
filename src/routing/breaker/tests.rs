//! Rows of events in, what stands against a request out; and that there is always a way back.

use proptest::prelude::*;

use super::*;

const RULES: BreakerRules = BreakerRules {
    failures: 3,
    window: Duration::from_secs(60),
    cooldown: Duration::from_secs(10),
    max_cooldown: Duration::from_secs(300),
};

fn secs(secs: u64) -> Moment {
    Moment::from_secs(secs)
}

impl Breaker {
    fn fails(&mut self, at: u64) {
        self.fail(When::BeforeFirstByte, Fault::Failures, secs(at), &RULES, secs(at));
    }
}

/// Failures at those seconds; expected is the end of the cooldown, if it opened.
#[track_caller]
fn check_row(failures: &[u64], expected: Option<u64>) {
    let mut breaker = Breaker::default();
    failures.iter().for_each(|at| breaker.fails(*at));
    assert_eq!(breaker.opening().map(|opening| opening.until), expected.map(secs), "{failures:?}");
}

#[test]
fn opens_after_a_row_within_the_window() {
    check_row(&[100, 101], None);
    check_row(&[100, 101, 102], Some(112));
    check_row(&[100, 101, 170], None);
    check_row(&[100, 101, 102, 113], Some(133));
    check_row(&[100, 101, 102, 113, 134, 175, 256, 417, 718], Some(1018));
}

#[test]
fn a_single_failure_costs_nothing_and_a_row_fades() {
    let mut breaker = Breaker::default();
    let trust = |breaker: &Breaker, at| (breaker.trust(&RULES, secs(at)) * 1000.0).round() / 1000.0;
    assert_eq!(trust(&breaker, 100), 1.0);
    breaker.fails(100);
    assert_eq!(trust(&breaker, 100), 1.0);
    breaker.fails(100);
    assert_eq!([trust(&breaker, 100), trust(&breaker, 130), trust(&breaker, 230)], [0.688, 0.825, 1.0]);
}

#[test]
fn a_share_of_failures_opens_it_where_successes_lie_between() {
    let mut breaker = Breaker::default();
    for n in 0..5 {
        assert_eq!(breaker.opening(), None, "{n} failures of {}", 2 * n);
        breaker.fails(100);
        breaker.answered(secs(100), secs(100));
        breaker.done(&RULES, secs(100));
    }
    assert!(breaker.opening().is_none(), "the last was a success");
    breaker.fails(100);
    assert!(breaker.opening().is_some());
}

#[test]
fn answers_that_break_off_are_a_row_although_each_had_begun() {
    let mut breaker = Breaker::default();
    for _ in 0..3 {
        breaker.answered(secs(100), secs(100));
        breaker.fail(When::Answering, Fault::Failures, secs(100), &RULES, secs(100));
    }
    assert!(breaker.opening().is_some());
}

#[test]
fn hlt_07_time_alone_leads_to_one_trial_and_its_answer_closes() {
    let mut breaker = Breaker::default();
    (100..103).for_each(|at| breaker.fails(at));
    assert_eq!(breaker.bar(secs(111)), Some(Bar::Open(secs(112))));
    assert!(breaker.bar(secs(112)).is_none() && breaker.wants_trial(secs(112)).is_some());
    breaker.sent(LeaseId(1));
    assert_eq!(breaker.bar(secs(112)), Some(Bar::Trial));
    breaker.trial_over(LeaseId(1));
    assert!(breaker.wants_trial(secs(113)).is_some(), "a client that left says nothing");
    breaker.sent(LeaseId(2));
    assert!(breaker.answered(secs(113), secs(114)));
    assert_eq!(breaker.bar(secs(114)), None);
}

#[test]
fn what_was_under_way_neither_extends_nor_closes() {
    let mut breaker = Breaker::default();
    (0..3).for_each(|_| breaker.fails(100));
    breaker.fail(When::BeforeFirstByte, Fault::Failures, secs(90), &RULES, secs(105));
    assert_eq!(breaker.opening().map(|opening| opening.until), Some(secs(110)));
    assert!(!breaker.answered(secs(90), secs(105)));
    breaker.open(Fault::Stuck, &RULES, secs(106));
    assert!(breaker.answered(secs(90), secs(107)), "slow, then, and not stuck");
}

#[test]
fn hlt_08_the_latest_of_all_times_holds() {
    let mut breaker = Breaker::default();
    for wait in [1, 20, 20, 1] {
        breaker.told(Duration::from_secs(wait), secs(100));
    }
    breaker.busy(secs(100));
    assert_eq!(breaker.bar(secs(119)), Some(Bar::Cooling(secs(120))));
    assert_eq!(breaker.last_resort_at(), secs(120), "even without anybody else");
    assert_eq!(breaker.bar(secs(120)), None);
    assert_eq!((breaker.opening(), breaker.trust(&RULES, secs(100))), (None, 1.0), "ret_11");
    breaker.told(Duration::MAX, secs(200));
    assert_eq!(breaker.bar(secs(200) + TOLD_MAX), None);
}

#[test]
fn hlt_11_pauses_double_while_it_stays_busy() {
    let mut breaker = Breaker::default();
    let mut asked = Vec::new();
    for quarter in 0..80 {
        let now = Moment(1_000_000_000 + quarter * 250_000);
        if breaker.bar(now).is_none() {
            asked.push(quarter / 4);
            breaker.busy(now);
        }
    }
    assert_eq!(asked, [0, 1, 3, 7, 15]);
    assert!(breaker.last_resort_at() <= secs(1000), "the only one is asked at once");
}

#[test]
fn hlt_10_the_only_holder_is_out_for_a_moment() {
    let mut breaker = Breaker::default();
    (0..10).for_each(|n| breaker.fails(100 + n));
    assert!(breaker.bar(secs(115)).is_some());
    assert_eq!(breaker.last_resort_at(), secs(109) + ONLY_HOLDER_PAUSE);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Fails(When),
    Busy,
    Told,
    Opens(Fault),
    Sent,
    Answered,
    Done,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Fails(When::BeforeFirstByte)),
        Just(Event::Fails(When::Answering)),
        Just(Event::Busy),
        Just(Event::Told),
        Just(Event::Opens(Fault::Stuck)),
        Just(Event::Opens(Fault::Unreachable)),
        Just(Event::Sent),
        Just(Event::Answered),
        Just(Event::Done),
    ]
}

fn after(events: &[(Event, u64)]) -> (Breaker, Moment) {
    let (mut breaker, mut now) = (Breaker::default(), secs(1000));
    for (n, (event, wait)) in events.iter().enumerate() {
        now = now + Duration::from_millis(*wait);
        match event {
            Event::Fails(when) => breaker.fail(*when, Fault::Failures, now, &RULES, now),
            Event::Busy => breaker.busy(now),
            Event::Told => breaker.told(Duration::from_millis(*wait), now),
            Event::Opens(fault) => breaker.open(*fault, &RULES, now),
            Event::Sent => breaker.sent(LeaseId(n as u64)),
            Event::Answered => drop(breaker.answered(now, now)),
            Event::Done => breaker.done(&RULES, now),
        }
    }
    (breaker, now)
}

proptest! {
    #[test]
    fn there_is_always_a_way_back(events in proptest::collection::vec((event(), 0u64..30_000), 0..60)) {
        let (mut breaker, now) = after(&events);
        let later = now + RULES.max_cooldown.max(TOLD_MAX);
        if let Some(trial) = breaker.opening().and_then(|opening| opening.trial) {
            breaker.trial_over(trial);
        }
        prop_assert_eq!(breaker.bar(later), None, "time alone");
        breaker.sent(LeaseId(u64::MAX));
        breaker.answered(later, later);
        prop_assert_eq!(breaker.opening(), None);
        prop_assert_eq!(breaker.trust(&RULES, later), 1.0);
        prop_assert!(breaker.last_resort_at() <= now + TOLD_MAX.max(ONLY_HOLDER_PAUSE));
    }

    #[test]
    fn l7_one_more_failure_never_helps(
        events in proptest::collection::vec((event(), 0u64..5000), 0..40), wait in 0u64..9000,
    ) {
        let (before, now) = after(&events);
        let mut worse = before;
        worse.fail(When::BeforeFirstByte, Fault::Failures, now, &RULES, now);
        let at = now + Duration::from_millis(wait);
        prop_assert!(worse.trust(&RULES, at) <= before.trust(&RULES, at) + 1e-12);
        prop_assert!(before.bar(at).is_none() || worse.bar(at).is_some(), "{:?} {:?}", before.bar(at), worse.bar(at));
        prop_assert!(worse.last_resort_at() >= before.last_resort_at());
    }
}
