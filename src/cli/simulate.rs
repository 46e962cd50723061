//! `warmgate simulate`: what would policies do with this traffic, on these nodes?
//!
//! Opens nothing but the plan and its traces. The table goes to standard output, progress to standard error.

use std::io::{self, IsTerminal, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{EXIT_WRONG, SimulateArgs};
use crate::sim::plan::{self, Contestant, Plan};
use crate::sim::report::{self, Row, comparison, plot, table};
use crate::sim::simulation::{Run, row, runs};

pub fn simulate(args: &SimulateArgs) -> ExitCode {
    match answer(args, &mut io::stdout(), &mut io::stderr()) {
        Ok(code) => ExitCode::from(code),
        // A reader that went away (`| head -1`) has seen what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warmgate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(args: &SimulateArgs, out: &mut dyn Write, err: &mut (dyn Write + Send)) -> io::Result<u8> {
    // All are read before the first is run: a slip in the last should not cost the time of the others.
    let mut plans = Vec::new();
    for path in &args.plan {
        let plan = plan::load(path, args.traces.as_deref()).map_err(|problems| problems.to_string());
        match plan.and_then(|plan| narrowed(plan, args)) {
            Ok(plan) => plans.push(plan),
            Err(problems) => {
                writeln!(err, "{problems}")?;
                return Ok(EXIT_WRONG);
            }
        }
    }
    let began = Instant::now();
    let (mut all, mut count) = (Vec::new(), 0);
    for plan in &plans {
        let rows = rows(plan, err);
        let means = report::means(&rows);
        writeln!(out, "{}: {} nodes, simulated\n", plan.name, plan.nodes.len())?;
        write!(out, "{}", table::table(&means))?;
        count += rows.len();
        if let Some(folder) = &args.out {
            save(folder, &plan.name, &rows, &means)?;
        }
        all.extend(means);
    }
    write!(out, "{}", table::LEGEND)?;
    writeln!(err, "{count} runs in {:.1} s", began.elapsed().as_secs_f64())?;
    if plans.len() > 1 {
        let comparison = comparison::comparison(&all);
        write!(out, "\n{comparison}")?;
        if let Some(folder) = &args.out {
            std::fs::write(folder.join("comparison.md"), comparison)?;
            std::fs::write(folder.join("means.csv"), comparison::as_csv(&all))?;
        }
    }
    Ok(0)
}

/// Only what the arguments ask for.
fn narrowed(mut plan: Plan, args: &SimulateArgs) -> Result<Plan, String> {
    if !args.policy.is_empty() {
        plan.contestants = args.policy.iter().map(|name| contestant(name)).collect::<Result<_, _>>()?;
    }
    if !args.seed.is_empty() {
        plan.seeds = args.seed.clone();
    }
    if !args.rate.is_empty() {
        plan.rates = args.rate.clone();
    }
    match plan.rates.iter().find(|rate| !(**rate > 0.0 && rate.is_finite())) {
        Some(rate) => Err(format!("--rate {rate}: must be more than zero")),
        None => Ok(plan),
    }
}

fn contestant(name: &str) -> Result<Contestant, String> {
    Contestant::find(name).ok_or_else(|| {
        let known: Vec<&str> = Contestant::all().iter().map(|contestant| contestant.name()).collect();
        format!("--policy {name}: no such policy; known are {}", known.join(", "))
    })
}

/// All rows in order, run on as many threads as there are cores.
fn rows(plan: &Plan, err: &mut (dyn Write + Send)) -> Vec<Row> {
    let todo = runs(plan);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(todo.len());
    let telling = parking_lot::Mutex::new(Telling { err, is_terminal: io::stderr().is_terminal() });
    let work = || {
        let mut rows = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(at) = todo.get(index) else { break };
            rows.push((index, row(plan, *at)));
            let count = done.fetch_add(1, Ordering::Relaxed) + 1;
            telling.lock().tell(count, todo.len(), *at);
        }
        rows
    };
    let mut rows: Vec<(usize, Row)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    telling.into_inner().over();
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// How far it has come, where somebody looks on.
struct Telling<'a> {
    err: &'a mut (dyn Write + Send),
    is_terminal: bool,
}

impl Telling<'_> {
    fn tell(&mut self, count: usize, all: usize, at: Run) {
        if self.is_terminal {
            // Nobody is helped by a failed line of progress.
            let _ = write!(self.err, "\r\x1b[K{count}/{all} {} x{} seed {}", at.contestant.name(), at.rate, at.seed);
            let _ = self.err.flush();
        }
    }

    fn over(&mut self) {
        if self.is_terminal {
            let _ = write!(self.err, "\r\x1b[K");
        }
    }
}

fn save(folder: &Path, name: &str, rows: &[Row], means: &[report::Mean]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("{name}.jsonl")), report::rows_as_json(rows))?;
    std::fs::write(folder.join(format!("{name}.svg")), plot::plot(&format!("{name} (simulated)"), means))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// The exit code, what is said, and what is complained of.
    fn simulate(plan: PathBuf, policy: &str, out: Option<PathBuf>) -> (u8, String, String) {
        let (policy, seed) = (vec![policy.to_string()], vec![7]);
        let args = SimulateArgs { plan: vec![plan], traces: None, out, policy, seed, rate: vec![] };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = answer(&args, &mut out, &mut err).expect("an answer");
        let [out, err] = [out, err].map(|bytes| String::from_utf8(bytes).expect("text"));
        (code, out, err)
    }

    fn toy() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/plans/toy.yaml")
    }

    #[test]
    fn a_table_rows_and_a_plot() {
        let folder = tempfile::tempdir().expect("a folder");
        let (code, out, err) = simulate(toy(), "fleet", Some(folder.path().join("new")));
        assert_eq!(code, 0, "{err}");
        assert!(out.starts_with("toy: 2 nodes, simulated\n\nx1, "), "{out}");
        assert!(out.contains(": 32 requests, 1 seed;") && !out.contains("round_robin"), "{out}");
        let rows = std::fs::read_to_string(folder.path().join("new/toy.jsonl")).expect("rows");
        assert_eq!(rows.lines().count(), 1);
        assert!(rows.starts_with(r#"{"plan":"toy","policy":"fleet","rate":1.0,"load":0."#), "{rows}");
        assert!(rows.contains(r#""seed":7,"requests":32,"refused":0,"#), "{rows}");
        assert!(folder.path().join("new/toy.svg").exists());
    }

    #[test]
    fn several_plans_side_by_side() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = Some(folder.path().to_path_buf());
        let (policy, seed, rate) = (vec!["fleet".to_string(), "round_robin".to_string()], vec![7], vec![1.0]);
        let args = SimulateArgs { plan: vec![toy(), toy()], traces: None, out, policy, seed, rate };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(answer(&args, &mut out, &mut err).expect("an answer"), 0);
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("written");
        assert_eq!(read("means.csv").lines().count(), 1 + 2 * 2, "a head, and a line for each policy of each plan");
        assert!(String::from_utf8(out).expect("text").ends_with(&read("comparison.md")));
    }

    #[test]
    fn wrong_plans_and_policies_are_refused() {
        let (code, out, err) = simulate(toy(), "flet", None);
        assert_eq!((code, out.as_str()), (EXIT_WRONG, ""));
        assert!(err.contains("--policy flet: no such policy; known are fleet"), "{err}");
        let (code, _, err) = simulate("nowhere.yaml".into(), "fleet", None);
        assert_eq!(code, EXIT_WRONG);
        assert!(err.starts_with("nowhere.yaml: cannot be read: No such file"), "{err}");
    }
}
