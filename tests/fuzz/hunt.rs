//! Many inputs for one target, and what is said of the one that broke a law.
//!
//! An input that ends otherwise than all before it joins the seeds, as coverage would have it: what a
//! target tells of an end is coarse, so the pool stays small. Everything follows from the seed.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use warmgate::routing::chain::mix;

use super::chance::Chance;
use super::mutate::mutate;
use super::target::Target;

/// Inputs that are kept because they ended in a new way.
const POOL_MAX: usize = 4096;

pub struct Hunt {
    target: &'static Target,
    seeds: Vec<Vec<u8>>,
    ends: HashSet<u64>,
    chance: Chance,
}

/// An input that broke a law.
pub struct Broken {
    pub input: Vec<u8>,
    pub law: String,
}

impl Hunt {
    /// Begins with the seeds as they are; the first of them that breaks a law comes back.
    pub fn new(target: &'static Target, seeds: Vec<Vec<u8>>, seed: u64) -> Result<Hunt, Broken> {
        assert!(!seeds.is_empty(), "no seeds for {}", target.name);
        let chance = Chance::new(mix(seed, target.name.len() as u64));
        let mut hunt = Hunt { target, seeds: Vec::new(), ends: HashSet::new(), chance };
        for input in &seeds {
            hunt.ends.insert(try_one(target, input)?);
        }
        hunt.seeds = seeds;
        Ok(hunt)
    }

    pub fn next_input(&mut self) -> Vec<u8> {
        mutate(&self.seeds, self.target.words, &mut self.chance)
    }

    pub fn try_input(&mut self, input: Vec<u8>) -> Result<(), Broken> {
        let end = try_one(self.target, &input)?;
        if self.ends.insert(end) && self.seeds.len() < POOL_MAX {
            self.seeds.push(input);
        }
        Ok(())
    }

    /// Ways in which inputs ended.
    pub fn ends(&self) -> usize {
        self.ends.len()
    }
}

fn try_one(target: &Target, input: &[u8]) -> Result<u64, Broken> {
    let tried = catch_unwind(AssertUnwindSafe(|| (target.check)(input)));
    let law = match tried {
        Ok(Ok(end)) => return Ok(end),
        Ok(Err(law)) => law,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            format!("panicked: {}", words.unwrap_or("without words"))
        }
    };
    Err(Broken { input: input.to_vec(), law })
}
