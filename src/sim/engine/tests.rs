//! Stories of one engine, told in virtual time, and its invariants under any sequence of calls.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const GB: u64 = 1_000_000_000;

fn model(name: &str, slots: u32, memory_bytes: u64) -> ModelParams {
    ModelParams {
        name: name.into(),
        slots,
        memory_bytes,
        load: Duration::from_secs(3),
        resident_at_start: false,
        prefill: PrefillCost::Linear { tokens_per_s: 1000.0 },
        decode_tokens_per_s: 10.0,
        decode_load: DecodeLoad::default(),
        cache: CacheParams::PerSlot { kept: 0 },
        context_tokens: 8192,
        context_tokens_max: 32_768,
    }
}

fn engine(models: Vec<ModelParams>, memory_bytes: u64, max_waiting: usize) -> Engine {
    Engine::new(EngineParams { models, memory_bytes, max_waiting, keep_alive: None })
}

/// One resident model `m`.
fn one_model(slots: u32, max_waiting: usize) -> Engine {
    let mut model = model("m", slots, GB);
    model.resident_at_start = true;
    engine(vec![model], 2 * GB, max_waiting)
}

/// The first `tokens` of an endless text, in blocks of a hundred tokens.
fn text(name: u64, tokens: u32) -> History {
    let block = |index| Block { hash: name * 1_000_000 + u64::from(index), tokens_end: (index + 1) * 100 };
    History::new((0..tokens / 100).map(block).collect())
}

fn job(model: &str, text_name: u64, prompt_tokens: u32, output_tokens: u32) -> Job {
    Job {
        model: model.into(),
        history: text(text_name, prompt_tokens + output_tokens),
        prompt_tokens,
        output_tokens,
        context_tokens: None,
        keep_alive: None,
        slowness: 1.0,
        tell_tokens: false,
    }
}

fn at(ms: u64) -> Moment {
    Moment(ms * 1000)
}

/// Lets the engine run until nothing is left to happen.
fn run(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(next) = engine.next_event() {
        events.extend(engine.advance(next));
    }
    events
}

/// When each job ended, in milliseconds, and what it found cached.
#[track_caller]
fn check_ends(engine: &mut Engine, expected: &[(JobId, u64, u32)]) {
    let ends: Vec<_> = (run(engine).into_iter())
        .filter_map(|event| match event.what {
            What::Done(usage) => Some((event.job, event.at.0 / 1000, usage.cached_tokens)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, expected);
}

#[test]
fn a_job_is_prefilled_and_decoded_at_the_models_speed() {
    let mut engine = one_model(1, 0);
    let id = engine.submit(at(0), job("m", 1, 500, 11)).unwrap();
    check_ends(&mut engine, &[(id, 500 + 1000, 0)]);
}

#[test]
fn prefills_queue_behind_each_other_and_decodes_do_not() {
    let mut engine = one_model(2, 0);
    let first = engine.submit(at(0), job("m", 1, 1000, 31)).unwrap();
    let second = engine.submit(at(0), job("m", 2, 500, 11)).unwrap();
    check_ends(&mut engine, &[(second, 1500 + 1000, 0), (first, 1000 + 3000, 0)]);
}

#[test]
fn a_follow_up_computes_only_what_is_new() {
    let mut engine = one_model(1, 0);
    let first = engine.submit(at(0), job("m", 1, 1000, 100)).unwrap();
    check_ends(&mut engine, &[(first, 1000 + 9900, 0)]);
    let second = engine.submit(at(20_000), job("m", 1, 1300, 1)).unwrap();
    check_ends(&mut engine, &[(second, 20_000 + 200, 1100)]);
}

#[test]
fn the_same_prompt_again_still_computes_its_last_token() {
    let mut engine = one_model(1, 0);
    let first = engine.submit(at(0), job("m", 1, 1000, 1)).unwrap();
    check_ends(&mut engine, &[(first, 1000, 0)]);
    let again = engine.submit(at(2000), job("m", 1, 1000, 1)).unwrap();
    check_ends(&mut engine, &[(again, 2001, 999)]);
}

#[test]
fn blocks_are_shared_by_conversations_that_run_side_by_side() {
    let mut params = model("m", 8, GB);
    params.resident_at_start = true;
    params.cache = CacheParams::Blocks { blocks: 100, block_tokens: 100 };
    let mut engine = engine(vec![params], GB, 0);
    let first = engine.submit(at(0), job("m", 1, 1000, 1)).unwrap();
    let second = engine.submit(at(0), job("m", 1, 1000, 1)).unwrap();
    check_ends(&mut engine, &[(first, 1000, 0), (second, 1001, 999)]);
}

#[test]
fn a_full_queue_refuses() {
    let mut engine = one_model(1, 1);
    let job = || job("m", 1, 100, 1);
    assert!(engine.submit(at(0), job()).is_ok());
    assert!(engine.submit(at(0), job()).is_ok());
    assert_eq!(engine.submit(at(0), job()), Err(Refused::Busy));
    assert_eq!((engine.running(), engine.waiting()), (1, 1));
    run(&mut engine);
    assert!(engine.submit(at(10_000), job()).is_ok());
}

#[test]
fn unknown_and_oversized_models_are_refused() {
    let mut engine = engine(vec![model("huge", 1, 9 * GB)], GB, 9);
    let mut submit = |name| engine.submit(at(0), job(name, 1, 100, 1));
    assert_eq!(submit("nobody"), Err(Refused::UnknownModel));
    assert_eq!(submit("huge"), Err(Refused::TooLarge));
}

#[test]
fn models_load_one_after_another() {
    let models = vec![model("a", 1, GB), model("b", 1, GB)];
    let mut engine = engine(models, 2 * GB, 9);
    let a = engine.submit(at(0), job("a", 1, 100, 1)).unwrap();
    let b = engine.submit(at(0), job("b", 2, 100, 1)).unwrap();
    check_ends(&mut engine, &[(a, 3100, 0), (b, 6100, 0)]);
    assert_eq!(engine.loads(), 2);
}

#[test]
fn an_idle_model_makes_room_at_once_and_a_busy_one_when_it_is_done() {
    let models = vec![model("a", 1, GB), model("b", 1, GB)];
    let mut engine = engine(models, GB, 9);
    let a1 = engine.submit(at(0), job("a", 1, 1000, 1)).unwrap();
    engine.advance(at(3500));
    let b = engine.submit(at(3500), job("b", 2, 100, 1)).unwrap();
    // Waits behind `b`, though `a` is still in memory: otherwise `b` might wait for ever.
    let a2 = engine.submit(at(3600), job("a", 1, 1000, 1)).unwrap();
    check_ends(&mut engine, &[(a1, 4000, 0), (b, 7100, 0), (a2, 11_100, 0)]);
}

#[test]
fn another_context_window_reloads_the_model() {
    let mut engine = one_model(1, 9);
    let first = engine.submit(at(0), job("m", 1, 1000, 1)).unwrap();
    let mut wide = job("m", 1, 1000, 1);
    wide.context_tokens = Some(16_384);
    let second = engine.submit(at(0), wide.clone()).unwrap();
    check_ends(&mut engine, &[(first, 1000, 0), (second, 5000, 0)]);
    let third = engine.submit(at(6000), wide).unwrap();
    check_ends(&mut engine, &[(third, 6001, 999)]);
    assert_eq!(engine.resident()[0].context_tokens, 16_384);
}

#[test]
fn an_idle_model_leaves_after_its_time_and_a_used_one_stays() {
    let mut params = model("m", 1, GB);
    params.resident_at_start = true;
    let mut engine = Engine::new(EngineParams {
        models: vec![params],
        memory_bytes: GB,
        max_waiting: 0,
        keep_alive: Some(Duration::from_secs(10)),
    });
    engine.submit(at(9000), job("m", 1, 1000, 1)).unwrap();
    engine.advance(at(19_999));
    assert_eq!(engine.resident()[0].expires, Some(at(20_000)));
    engine.advance(at(20_000));
    assert!(engine.resident().is_empty());
}

/// When the model leaves after jobs with these wishes, one a second from zero.
#[track_caller]
fn check_leaving(wishes: &[Option<KeepAlive>], expected: Option<Moment>) {
    let mut params = model("m", 1, GB);
    params.resident_at_start = true;
    let keep_alive = Some(Duration::from_secs(10));
    let mut engine = Engine::new(EngineParams { models: vec![params], memory_bytes: GB, max_waiting: 0, keep_alive });
    for (second, keep_alive) in (0..).zip(wishes.iter().copied()) {
        engine.submit(at(second * 1000), Job { keep_alive, ..job("m", 1, 0, 0) }).unwrap();
    }
    assert_eq!(engine.resident().first().and_then(|model| model.expires), expected);
    if let Some(expected) = expected {
        engine.advance(Moment(expected.0 - 1));
        assert_eq!(engine.resident().len(), 1, "too early");
        engine.advance(expected);
    }
    assert_eq!(engine.resident().is_empty(), expected.is_some());
}

#[test]
fn the_last_wish_to_stay_or_leave_is_heard() {
    let seconds = |seconds| Some(KeepAlive::For(Duration::from_secs(seconds)));
    check_leaving(&[None], Some(at(10_000)));
    check_leaving(&[seconds(60), None], Some(at(61_000)));
    check_leaving(&[seconds(60), seconds(2)], Some(at(3000)));
    check_leaving(&[seconds(60), Some(KeepAlive::Forever)], None);
}

#[test]
fn a_model_that_left_forgets_what_was_wished() {
    let mut params = model("m", 1, GB);
    params.load = Duration::from_secs(1);
    let keep_alive = Some(Duration::from_secs(10));
    let mut engine = Engine::new(EngineParams { models: vec![params], memory_bytes: GB, max_waiting: 9, keep_alive });
    let at_once = Some(KeepAlive::For(Duration::ZERO));
    engine.submit(at(0), Job { keep_alive: at_once, ..job("m", 1, 0, 0) }).unwrap();
    engine.advance(at(1000));
    assert!(engine.resident().is_empty());
    engine.submit(at(2000), job("m", 1, 0, 0)).unwrap();
    engine.advance(at(3000));
    assert_eq!(engine.resident()[0].expires, Some(at(13_000)));
}

#[test]
fn unload_waits_for_the_running_job() {
    let mut engine = one_model(1, 0);
    engine.submit(at(0), job("m", 1, 1000, 1)).unwrap();
    engine.unload(at(10), "m");
    assert_eq!(engine.resident().len(), 1);
    run(&mut engine);
    assert!(engine.resident().is_empty());
}

#[test]
fn unloading_a_model_on_disk_means_nothing_for_its_next_use() {
    let mut engine = engine(vec![model("m", 1, GB)], GB, 9);
    engine.unload(at(0), "m");
    engine.submit(at(0), job("m", 1, 100, 1)).unwrap();
    run(&mut engine);
    assert_eq!(engine.resident().len(), 1);
}

#[test]
fn a_wish_for_the_model_alone_ends_when_it_is_loaded() {
    let mut engine = engine(vec![model("m", 1, GB)], GB, 9);
    let id = engine.submit(at(0), job("m", 1, 0, 0)).unwrap();
    check_ends(&mut engine, &[(id, 3000, 0)]);
}

#[test]
fn cancelling_frees_the_slot_the_unit_and_the_queue_at_once() {
    let mut engine = one_model(1, 9);
    let first = engine.submit(at(0), job("m", 1, 60_000, 1)).unwrap();
    let second = engine.submit(at(0), job("m", 2, 60_000, 1)).unwrap();
    let third = engine.submit(at(0), job("m", 3, 1000, 1)).unwrap();
    assert!(engine.cancel(at(100), second).is_some());
    assert_eq!(engine.cancel(at(100), second), None);
    assert!(engine.cancel(at(200), first).is_some());
    check_ends(&mut engine, &[(third, 1200, 0)]);
    assert_eq!((engine.running(), engine.waiting()), (0, 0));
}

#[test]
fn a_cancelled_answer_counts_what_was_made() {
    let mut engine = one_model(1, 0);
    let id = engine.submit(at(0), job("m", 1, 1000, 100)).unwrap();
    let usage = engine.cancel(at(1550), id).unwrap();
    assert_eq!(usage.output_tokens, 6);
    assert_eq!(usage.decode, Duration::from_millis(550));
}

#[test]
fn every_token_is_told_when_asked() {
    let mut engine = one_model(1, 0);
    let mut job = job("m", 1, 1000, 4);
    job.tell_tokens = true;
    engine.submit(at(0), job).unwrap();
    let times: Vec<u64> = run(&mut engine).iter().map(|e| e.at.0 / 1000).collect();
    // Started, first token, three more, done.
    assert_eq!(times, [0, 1000, 1100, 1200, 1300, 1300]);
}

// === invariants ===

#[derive(Clone, Debug)]
enum Step {
    Submit(Job),
    /// Cancels the n-th job ever accepted, if there is one.
    Cancel(usize),
    Wait(u64),
    Unload(&'static str),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn any_job() -> impl Strategy<Value = Job> {
    let numbers = (0..3usize, 0..4u64, 0..3000u32, 0..40u32);
    let seconds = (0..9u64).prop_map(Duration::from_secs);
    let keep_alive = prop_oneof![seconds.prop_map(KeepAlive::For), Just(KeepAlive::Forever)];
    let wishes = (prop::option::weighted(0.1, Just(4096)), prop::option::weighted(0.2, keep_alive));
    (numbers, any::<bool>(), wishes).prop_map(|((name, text, prompt, output), tell, (context, keep_alive))| Job {
        tell_tokens: tell,
        context_tokens: context,
        keep_alive,
        ..job(NAMES[name], text, prompt, output)
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => any_job().prop_map(Step::Submit),
        2 => (0..40usize).prop_map(Step::Cancel),
        4 => (0..3_000_000u64).prop_map(Step::Wait),
        1 => prop::sample::select(NAMES.as_slice()).prop_map(Step::Unload),
    ]
}

fn three_models(cache: CacheParams) -> Engine {
    let models = NAMES.map(|name| ModelParams { cache, ..model(name, 2, GB) });
    Engine::new(EngineParams {
        models: models.into(),
        memory_bytes: 2 * GB,
        max_waiting: 5,
        keep_alive: Some(Duration::from_secs(5)),
    })
}

/// Plays the steps, then lets the engine run dry; checks what must hold at every point on the way.
fn play(cache: CacheParams, steps: &[Step]) -> Vec<Event> {
    let mut engine = three_models(cache);
    let mut now = Moment(0);
    let mut accepted = Vec::new();
    let mut ended: BTreeMap<JobId, Usage> = BTreeMap::new();
    let mut trace = Vec::new();
    for step in steps {
        match step {
            Step::Submit(job) => {
                if let Ok(id) = engine.submit(now, job.clone()) {
                    accepted.push((id, job));
                }
            }
            Step::Cancel(index) => {
                if let Some((id, _)) = accepted.get(*index)
                    && let Some(usage) = engine.cancel(now, *id)
                {
                    assert!(ended.insert(*id, usage).is_none(), "{id:?} ended twice");
                }
            }
            Step::Wait(micros) => now = Moment(now.0 + micros),
            Step::Unload(name) => engine.unload(now, name),
        }
        check_bounds(&engine);
        trace.extend(engine.advance(now));
    }
    trace.extend(run(&mut engine));
    for event in &trace {
        if let What::Done(usage) = event.what {
            assert!(ended.insert(event.job, usage).is_none(), "{:?} ended twice", event.job);
        }
    }
    assert_eq!(ended.len(), accepted.len(), "every accepted job ends");
    assert_eq!((engine.running(), engine.waiting()), (0, 0));
    assert!(ended.values().all(|u| u.cached_tokens < u.prompt_tokens.max(1)));
    for (id, job) in &accepted {
        let others = accepted.iter().filter(|(other, j)| other != id && j.model == job.model);
        let known = others.map(|(_, other)| job.history.shared_tokens(&other.history, u32::MAX)).max();
        assert!(ended[id].cached_tokens <= known.unwrap_or(0), "{id:?} found what nobody computed");
    }
    assert!(trace.is_sorted_by_key(|event| event.at));
    trace
}

fn check_bounds(engine: &Engine) {
    assert!(engine.waiting() <= engine.max_waiting);
    assert!(engine.memory.models.iter().all(|m| m.running <= m.params.slots));
    let resident: u64 = engine.resident().iter().map(|m| m.memory_bytes).sum();
    assert!(resident <= 2 * GB);
}

proptest! {
    #[test]
    fn jobs_and_memory_are_conserved(steps in prop::collection::vec(any_step(), 1..60)) {
        let kinds = [
            CacheParams::PerSlot { kept: 3 },
            CacheParams::Blocks { blocks: 20, block_tokens: 100 },
        ];
        for cache in kinds {
            prop_assert_eq!(play(cache, &steps), play(cache, &steps), "the same calls, the same events");
        }
    }
}
