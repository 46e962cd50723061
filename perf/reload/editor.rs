//! Who writes the files: a function of the seed.
//!
//! Each differs from the one before. A third is asked for over the admin port, a third by SIGHUP, and a third is
//! left to the file watch. The next is written once this one has been counted.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::rig::{File, NAMES, Rig, SLOTS};

/// One in so many is broken.
const BROKEN_EVERY: usize = 5;

/// The least number of engines of a file.
const NODES_MIN: usize = 2;

/// For a file to be counted: many times what the file watch takes.
const COUNTED_MAX: Duration = Duration::from_secs(60);

/// Apart from those of streams, which count up from 0.
const STREAM: u64 = u64::MAX;

/// From one file to the next.
const PAUSE: Duration = Duration::from_millis(200);

pub struct Editor {
    dice: Dice,
    /// What was written, by the outcome that it must have.
    files: BTreeMap<&'static str, usize>,
}

impl Editor {
    pub fn new(seed: u64) -> Editor {
        Editor { dice: Dice::new(seed, STREAM), files: BTreeMap::new() }
    }

    pub fn files(&self) -> &BTreeMap<&'static str, usize> {
        &self.files
    }

    pub async fn edit(&mut self, rig: &Rig, n: usize) {
        let file = self.next(n);
        let before = total(rig).await;
        rig.write(&file, &format!("key-{n}"));
        match n % 3 {
            0 => {
                let status = rig.ask_for_reload().await;
                assert_eq!(status, if file.broken { 422 } else { 200 }, "file {n}: {file:?}");
            }
            1 => rig.hang_up(),
            _ => {}
        }
        *self.files.entry(if file.broken { "refused" } else { "applied" }).or_default() += 1;
        let began = Instant::now();
        while total(rig).await == before {
            assert!(began.elapsed() < COUNTED_MAX, "file {n} was not noticed: {file:?}\n{}", rig.gate.log());
            sleep(Duration::from_millis(20)).await;
        }
        eprintln!("{n:>4}: {}", describe(&file));
        sleep(PAUSE).await;
    }

    fn next(&mut self, n: usize) -> File {
        let mut nodes: Vec<(usize, u32)> = (0..NAMES.len()).map(|node| (node, 1 + self.dice.below(9) as u32)).collect();
        let kept = NODES_MIN + self.dice.below(NAMES.len() + 1 - NODES_MIN);
        while nodes.len() > kept {
            nodes.remove(self.dice.below(nodes.len()));
        }
        File {
            nodes,
            slots: SLOTS - self.dice.below(8) as u32,
            alias: n as u32,
            connect_s: 2 + n as u32 % 5,
            broken: n % BROKEN_EVERY == BROKEN_EVERY - 1,
        }
    }
}

async fn total(rig: &Rig) -> usize {
    rig.reloads().await.values().sum()
}

fn describe(file: &File) -> String {
    let nodes: Vec<&str> = file.nodes.iter().map(|(node, _)| NAMES[*node]).collect();
    format!("{}{}", nodes.join(" "), if file.broken { ", broken" } else { "" })
}
