//! Options, asked and in memory, by tables.

use super::*;

const AMPLE: Room = Room { prompt_tokens: 10, output_tokens: 0 };

/// Options in a few words: `num_ctx=8192 num_gpu=-1`; none at all for the empty text.
fn options(words: &str) -> RunnerOptions {
    let mut options = RunnerOptions::default();
    for (name, value) in words.split_whitespace().filter_map(|word| word.split_once('=')) {
        options.set(RunnerOption::of_name(name).expect("an option"), value.parse().ok());
    }
    options
}

/// A runner that was loaded for those options.
fn served(words: &str) -> Runner {
    Runner { served: Some(options(words)), ..Runner::default() }
}

#[track_caller]
fn check(runner: Runner, window: Option<u32>, asked: &str, differing: &str) {
    let misfit = runner.misfit(&options(asked), window, AMPLE, OptionGuard::Warn);
    let names = misfit.map(|misfit| misfit.differing.iter().map(|option| option.name()).collect::<Vec<_>>().join(" "));
    assert_eq!(names.unwrap_or_default(), differing, "{asked:?} with {runner:?} at {window:?}");
}

#[test]
fn the_window_is_known_from_the_engine() {
    let unknown = Runner::default();
    check(unknown, Some(4096), "num_ctx=8192", "num_ctx");
    check(unknown, Some(4096), "num_ctx=2048", "num_ctx");
    check(unknown, Some(4096), "num_ctx=4096", "");
    check(unknown, Some(4096), "", "");
    check(unknown, None, "num_ctx=8192", "");
    // Cut down to what the model was trained for.
    let trained = Runner { trained_tokens: Some(4096), ..Runner::default() };
    check(trained, Some(4096), "num_ctx=8192", "");
    check(trained, Some(2048), "num_ctx=8192", "num_ctx");
}

#[test]
fn a_window_left_out_is_the_models_own() {
    let own = Runner { own_window: Some(4096), ..Runner::default() };
    check(own, Some(4096), "", "");
    check(own, Some(8192), "", "num_ctx");
    check(Runner { own_window: Some(9999), trained_tokens: Some(4096), ..own }, Some(4096), "", "");
    let seen = Runner { seen_window: Some(4096), ..Runner::default() };
    check(seen, Some(4096), "", "");
    check(seen, Some(8192), "", "num_ctx");
    // Of its number nothing is known, but that it was another's wish that it has now.
    check(served("num_ctx=8192"), Some(8192), "", "num_ctx");
    check(served("num_ctx=8192"), None, "num_ctx=8192", "");
    check(served(""), Some(8192), "", "");
    check(served(""), None, "num_ctx=8192", "num_ctx");
}

#[test]
fn other_options_are_known_from_what_was_served() {
    for option in ["num_batch", "main_gpu", "use_mmap", "num_thread", "draft_num_predict"] {
        let one = format!("{option}=1");
        check(Runner::default(), Some(4096), &one, "");
        check(served(&one), Some(4096), &one, "");
        check(served(&format!("{option}=0")), Some(4096), &one, option);
        check(served(""), Some(4096), &one, option);
        check(served(&one), Some(4096), "", option);
    }
    check(served("num_gpu=20"), Some(4096), "num_gpu=21", "num_gpu");
    check(served("num_gpu=20"), Some(4096), "num_gpu=-1", "");
    check(served("num_gpu=20"), Some(4096), "", "");
    check(served("num_thread=4"), Some(4096), "num_ctx=8192 num_thread=8", "num_ctx num_thread");
}

#[track_caller]
fn check_pin(runner: Runner, window: Option<u32>, asked: &str, room: (u32, u32), sent: Option<&str>) {
    let room = Room { prompt_tokens: room.0, output_tokens: room.1 };
    let misfit = runner.misfit(&options(asked), window, room, OptionGuard::Pin).expect("a misfit");
    assert_eq!(misfit.reloads(), sent.is_none(), "{asked:?}");
    assert_eq!(misfit.sent(), options(sent.unwrap_or(asked)), "{asked:?}");
}

#[test]
fn what_is_pinned_is_what_is_in_memory() {
    let unknown = Runner::default();
    check_pin(unknown, Some(4096), "num_ctx=8192", (10, 0), Some("num_ctx=4096"));
    check_pin(
        served("num_thread=4"),
        Some(4096),
        "num_thread=8 num_ctx=4096",
        (10, 0),
        Some("num_thread=4 num_ctx=4096"),
    );
    // Served without: then it is sent without.
    check_pin(served(""), Some(4096), "num_thread=8", (10, 0), Some(""));
    // There is no value to write over.
    check_pin(served("num_thread=4"), Some(4096), "", (10, 0), None);
    check_pin(served("num_thread=4"), Some(4096), "num_ctx=8192", (10, 0), None);
    // Its window is not known.
    check_pin(served("num_ctx=4096"), None, "num_ctx=8192", (10, 0), None);
}

#[test]
fn a_larger_window_that_the_prompt_may_need_is_not_taken_away() {
    let unknown = Runner::default();
    check_pin(unknown, Some(4096), "num_ctx=8192", (2048, 0), Some("num_ctx=4096"));
    check_pin(unknown, Some(4096), "num_ctx=8192", (2049, 0), None);
    check_pin(unknown, Some(4096), "num_ctx=8192", (1548, 1000), Some("num_ctx=4096"));
    check_pin(unknown, Some(4096), "num_ctx=8192", (1549, 1000), None);
    check_pin(unknown, Some(4096), "num_ctx=2048", (9000, 0), Some("num_ctx=4096"));
}

#[test]
fn what_loads_a_model_is_learnt_until_something_else_did() {
    let at = Moment::from_secs;
    let mut runner = Runner::default();
    assert_eq!(runner.serves(options("num_ctx=2048 num_thread=4"), Some(4096), at(10)), Some(2048));
    assert_eq!(
        runner.serves(options("num_ctx=8192 num_thread=4"), Some(4096), at(10)),
        None,
        "it may have been cut down"
    );
    assert!(!runner.learn_window(4096, None, at(9)), "told before");
    assert!(runner.learn_window(8192, None, at(11)));
    check(runner, Some(8192), "num_thread=5", "num_ctx num_thread");
    assert!(runner.learn_window(2048, Some(8192), at(12)));
    check(runner, Some(2048), "num_thread=5", "");

    assert_eq!(runner.serves(options(""), Some(2048), at(20)), None, "nobody has seen what it takes for itself");
    assert!(runner.learn_window(4096, None, at(21)));
    check(runner, Some(8192), "", "num_ctx");
    runner.trained_tokens = Some(1024);
    assert_eq!(runner.serves(options("num_ctx=9000"), None, at(30)), Some(1024));
}
