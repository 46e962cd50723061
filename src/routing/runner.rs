//! The options that Ollama loads a model with, and what a request's own mean for the model in memory.
//!
//! A request whose options differ in one of these makes Ollama load the model anew, and whoever uses it as
//! it is waits and loses its cache. Of the runner in memory Ollama tells the context window; its other
//! options are known as far as they came by here, with the request that loaded it or was answered first.
//! What is not known counts as no difference. An option that is left out stands for the model's own value.
//! Unless that is known it counts as different from any given one, as it nearly always is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::moment::Moment;

/// What is done about requests that would make a node load its model anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OptionGuard {
    /// Nothing but to route with it in view.
    Pass,
    /// The same, and it is told.
    #[default]
    Warn,
    /// They are sent with the options of the model in memory instead.
    Pin,
}

impl OptionGuard {
    /// As they are written in a configuration.
    pub const NAMES: [(&'static str, OptionGuard); 3] =
        [("pass", OptionGuard::Pass), ("warn", OptionGuard::Warn), ("pin", OptionGuard::Pin)];

    pub fn name(self) -> &'static str {
        OptionGuard::NAMES.iter().find(|(_, guard)| *guard == self).map_or("", |(name, _)| name)
    }
}

/// An option that is set when a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunnerOption {
    NumCtx,
    NumBatch,
    NumGpu,
    MainGpu,
    UseMmap,
    NumThread,
    DraftNumPredict,
}

impl RunnerOption {
    pub const ALL: [RunnerOption; 7] = [
        RunnerOption::NumCtx,
        RunnerOption::NumBatch,
        RunnerOption::NumGpu,
        RunnerOption::MainGpu,
        RunnerOption::UseMmap,
        RunnerOption::NumThread,
        RunnerOption::DraftNumPredict,
    ];

    pub fn of_name(name: &str) -> Option<RunnerOption> {
        RunnerOption::ALL.into_iter().find(|option| option.name() == name)
    }

    /// As Ollama spells it.
    pub fn name(self) -> &'static str {
        match self {
            RunnerOption::NumCtx => "num_ctx",
            RunnerOption::NumBatch => "num_batch",
            RunnerOption::NumGpu => "num_gpu",
            RunnerOption::MainGpu => "main_gpu",
            RunnerOption::UseMmap => "use_mmap",
            RunnerOption::NumThread => "num_thread",
            RunnerOption::DraftNumPredict => "draft_num_predict",
        }
    }
}

/// What a request says of these options. `use_mmap` is 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerOptions([Option<i32>; RunnerOption::ALL.len()]);

impl RunnerOptions {
    pub fn get(&self, option: RunnerOption) -> Option<i32> {
        self.0.get(option as usize).copied().flatten()
    }

    pub fn set(&mut self, option: RunnerOption, value: Option<i32>) {
        if let Some(place) = self.0.get_mut(option as usize) {
            *place = value;
        }
    }

    /// With this context window and nothing else.
    pub fn with_num_ctx(tokens: u32) -> RunnerOptions {
        let mut options = RunnerOptions::default();
        options.set(RunnerOption::NumCtx, Some(i32::try_from(tokens).unwrap_or(i32::MAX)));
        options
    }

    pub fn num_ctx(&self) -> Option<u32> {
        self.get(RunnerOption::NumCtx).and_then(|tokens| u32::try_from(tokens).ok())
    }
}

/// A request's options are not those of the model in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// In the order of `RunnerOption::ALL`, at least one.
    pub differing: Vec<RunnerOption>,
    pub asked: RunnerOptions,
    /// What the model was loaded with, as far as that is known.
    pub resident: RunnerOptions,
    pub action: Action,
}

/// What is done about a misfit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The model is loaded anew, and nothing is said about it.
    Passed,
    /// The model is loaded anew.
    Warned,
    /// The options of the model in memory are sent instead.
    Pinned,
}

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Action::Passed => "passed",
            Action::Warned => "warned",
            Action::Pinned => "pinned",
        }
    }
}

impl Misfit {
    pub fn reloads(&self) -> bool {
        self.action != Action::Pinned
    }

    /// The options that the node gets to see.
    pub fn sent(&self) -> RunnerOptions {
        let mut sent = self.asked;
        for option in self.differing.iter().filter(|_| self.action == Action::Pinned) {
            sent.set(*option, self.resident.get(*option));
        }
        sent
    }
}

/// What is known of how a model is loaded, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runner {
    /// The most tokens that any window can hold; a larger one is cut down to it.
    pub trained_tokens: Option<u32>,
    /// Window that the model's own settings ask for.
    pub own_window: Option<u32>,
    /// Window that was seen after requests that asked for none.
    seen_window: Option<u32>,
    /// Options of the request that loaded the model in memory, or that it answered first.
    served: Option<RunnerOptions>,
    /// When a request changed that; older readings tell of what was before.
    changed_at: Moment,
}

/// So many times its estimated prompt a request must fit the window in memory before a larger `num_ctx` is
/// pinned to it: estimates go by characters, and what does not fit would be cut without a word.
const PROMPT_MARGIN: u64 = 2;

/// The size of a request, as `Ask` has it.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
}

impl Runner {
    /// How a request goes with the model in memory, whose window is `window` if that is known.
    pub fn misfit(&self, asked: &RunnerOptions, window: Option<u32>, room: Room, guard: OptionGuard) -> Option<Misfit> {
        // Nearly all requests ask for what the model was loaded with.
        if self.served.is_none_or(|served| served == *asked) && !self.differs(RunnerOption::NumCtx, asked, window) {
            return None;
        }
        let differing: Vec<RunnerOption> =
            RunnerOption::ALL.into_iter().filter(|option| self.differs(*option, asked, window)).collect();
        if differing.is_empty() {
            return None;
        }
        let mut resident = self.served.unwrap_or_default();
        if let Some(window) = window {
            resident.set(RunnerOption::NumCtx, RunnerOptions::with_num_ctx(window).get(RunnerOption::NumCtx));
        }
        let can_be_pinned = differing.iter().all(|option| match option {
            // There is no value to write over.
            _ if asked.get(*option).is_none() => false,
            RunnerOption::NumCtx => {
                window.is_some_and(|window| self.window_for(asked) <= Some(window) || room.fits(window))
            }
            _ => true,
        });
        let action = match guard {
            OptionGuard::Pin if can_be_pinned => Action::Pinned,
            OptionGuard::Pass => Action::Passed,
            OptionGuard::Warn | OptionGuard::Pin => Action::Warned,
        };
        Some(Misfit { differing, asked: *asked, resident, action })
    }

    /// The window of a model that is loaded for these options; `None`: unknown.
    pub fn window_for(&self, asked: &RunnerOptions) -> Option<u32> {
        let window = asked.num_ctx().or(self.own_window).map(|window| self.cut(window));
        window.or(self.seen_window)
    }

    /// Whether what was learnt by requests is young enough to go by.
    pub fn is_fresh(&self, now: Moment, stale_after: Duration) -> bool {
        self.served.is_some() && now.since(self.changed_at) < stale_after
    }

    /// The model is loaded with these options, or answered a request with them. Gives the window that it
    /// has when loaded so.
    pub(super) fn serves(&mut self, sent: RunnerOptions, before: Option<u32>, now: Moment) -> Option<u32> {
        self.served = Some(sent);
        self.changed_at = now;
        // A larger one may have been cut down.
        let certain = |tokens: u32| self.trained_tokens.is_some() || before.is_some_and(|window| tokens <= window);
        match sent.num_ctx() {
            Some(tokens) if !certain(tokens) => None,
            _ => self.window_for(&sent),
        }
    }

    pub(super) fn has_served(&self) -> bool {
        self.served.is_some()
    }

    /// Nothing is known any more of what is in memory.
    pub(super) fn forget(&mut self) {
        self.served = None;
    }

    /// A reading asked for at `asked_at` tells a window; whether it tells of what is in memory now.
    pub(super) fn learn_window(&mut self, told: u32, before: Option<u32>, asked_at: Moment) -> bool {
        if asked_at < self.changed_at {
            return false;
        }
        match self.served {
            Some(served) if served.num_ctx().is_none() => self.seen_window = Some(told),
            // Somebody else had it loaded anew.
            _ if before.is_some_and(|before| before != told) => self.forget(),
            _ => {}
        }
        true
    }

    fn differs(&self, option: RunnerOption, asked: &RunnerOptions, window: Option<u32>) -> bool {
        let from_served = || self.served.is_some_and(|served| served.get(option) != asked.get(option));
        match option {
            RunnerOption::NumCtx => match (self.window_for(asked), window) {
                (Some(asked), Some(window)) => asked != window,
                _ => from_served(),
            },
            // Left to Ollama, any number of layers will do.
            RunnerOption::NumGpu => asked.get(option).is_some_and(|layers| layers >= 0) && from_served(),
            _ => from_served(),
        }
    }

    fn cut(&self, window: u32) -> u32 {
        self.trained_tokens.map_or(window, |trained| window.min(trained))
    }
}

impl Room {
    fn fits(self, window: u32) -> bool {
        PROMPT_MARGIN * u64::from(self.prompt_tokens) + u64::from(self.output_tokens) <= u64::from(window)
    }
}

#[cfg(test)]
mod tests;
