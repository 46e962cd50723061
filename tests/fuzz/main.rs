//! Bytes from outside, whatever they are: the committed seeds and some thousands of inputs made of them,
//! for every reader, held against its laws.
//!
//! The seed is fixed, so that a failure comes again; `WARMGATE_SEED=n` tries another. Longer runs, and one
//! input alone: `cargo run --release --example fuzz -- --help`.

mod chance;
mod hunt;
mod law;
mod mutate;
mod size;
mod target;
mod time;

use hunt::{Broken, Hunt};
use target::TARGETS;

/// For each target; seconds in a debug build.
const INPUTS: usize = 2000;

fn check(name: &str) {
    let seed = std::env::var("WARMGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let target = TARGETS.into_iter().find(|target| target.name == name).expect("a target");
    let tried = Hunt::new(target, target.corpus(), seed).and_then(|mut hunt| {
        (0..INPUTS).try_for_each(|_| {
            let input = hunt.next_input();
            hunt.try_input(input)
        })?;
        println!("{name}: {} distinct ends", hunt.ends());
        Ok(())
    });
    if let Err(Broken { input, law }) = tried {
        panic!("{name} with WARMGATE_SEED={seed}: {law}\ninput: \"{}\"", input.escape_ascii());
    }
}

macro_rules! targets {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_target_is_tried() {
            assert_eq!(TARGETS.map(|target| target.name), [$(stringify!($name)),*]);
        }
    };
}

targets!(peek, form, observe, prometheus, request, answer, engines, config);
