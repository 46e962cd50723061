//! A long run of the fuzz targets, or one input again.
//!
//! ```text
//! cargo run --release --example fuzz -- --inputs 1000000              # every target, one after another
//! cargo run --release --example fuzz -- --target peek --seed 7
//! cargo run --release --example fuzz -- --target peek --replay FILE   # the input that failed
//! ```
//!
//! With `CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true` before it, an overflow is seen too (a build of its own).
//!
//! Bounded and seeded: the same arguments try the same inputs. The input under trial stands in a file
//! before it is tried, so that not even an overflow of the stack or a hang takes it along; its path is
//! printed first. Exit code 1: a law was broken.

mod chance;
mod hunt;
mod law;
mod mutate;
mod target;
mod time;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use hunt::{Broken, Hunt};
use target::{TARGETS, Target};
use time::on_processor;

#[derive(Parser)]
struct Args {
    /// Inputs for each target.
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This target alone.
    #[arg(long)]
    target: Option<String>,
    /// Tries this file's bytes and nothing else.
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
}

/// No input may take longer; they are 64 KiB at most.
const INPUT_TIME_MAX: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args = Args::parse();
    let wanted = |target: &&&Target| args.target.as_ref().is_none_or(|name| name == target.name);
    let folder = std::env::temp_dir().join("warmgate-fuzz");
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let mut code = ExitCode::SUCCESS;
    for target in TARGETS.iter().filter(wanted) {
        let place = folder.join(target.name);
        let tried = match &args.replay {
            Some(file) => Hunt::new(target, vec![std::fs::read(file).expect("a readable file")], 0).map(|_| ()),
            None => run(target, &args, &place),
        };
        if let Err(Broken { input, law }) = tried {
            let file = place.with_extension("broken");
            std::fs::write(&file, &input).expect("room for the input");
            let shown: Vec<u8> = input.iter().copied().take(2000).collect();
            println!(
                "{}: {law}\ninput, {} bytes, in {}: \"{}\"",
                target.name,
                input.len(),
                file.display(),
                shown.escape_ascii()
            );
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn run(target: &'static Target, args: &Args, place: &Path) -> Result<(), Broken> {
    println!("{}: seed {}, input under trial in {}", target.name, args.seed, place.display());
    let mut under_trial = File::create(place).expect("a file in the temporary folder");
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut hunt = Hunt::new(target, target.corpus(), args.seed)?;
    for number in 1..=args.inputs {
        let input = hunt.next_input();
        note(&mut under_trial, &input);
        let started = on_processor();
        hunt.try_input(input.clone())?;
        let took = on_processor().saturating_sub(started);
        slowest = slowest.max(took);
        if took > INPUT_TIME_MAX {
            return Err(Broken { input, law: format!("took {took:?}") });
        }
        if number == args.inputs || number % 100_000 == 0 {
            let (s, ends) = (began.elapsed().as_secs_f64(), hunt.ends());
            println!("{}: {number} inputs, {s:.1} s, {ends} distinct ends, slowest {slowest:.1?}", target.name);
        }
    }
    Ok(())
}

fn note(file: &mut File, input: &[u8]) {
    let noted = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.write_all(input))
        .and_then(|()| file.set_len(input.len() as u64));
    noted.expect("room for one input");
}
