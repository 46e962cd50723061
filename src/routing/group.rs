//! Names that clients see beyond those the nodes report: one name over several nodes' models.
//!
//! A group is looked up before the nodes' own names. A name that ends in `*` stands for all names that
//! begin alike; a `*` in a target's model then stands for the rest of what the client wrote. Fallbacks
//! are tried in order, only when nobody in the group can serve, and are not followed any further.

use std::collections::HashMap;

use super::fleet::UpstreamId;
use super::name;
use super::policy::Policy;

#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: String,
    pub targets: Vec<Target>,
    pub fallbacks: Vec<String>,
    /// `None`: the fleet's.
    pub policy: Option<Policy>,
}

/// One node's model behind a group's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub upstream: UpstreamId,
    /// In the upstream's own spelling.
    pub model: String,
    pub weight: f64,
    /// Requests a minute it may be given.
    pub rpm: Option<u32>,
    /// Tokens a minute it may be given, prompts and answers.
    pub tpm: Option<u32>,
    /// In any unit, the same for all.
    pub cost: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    exact: HashMap<String, Group>,
    /// Prefix and group, longest prefix first.
    wildcards: Vec<(String, Group)>,
}

impl Groups {
    pub fn new(groups: Vec<Group>) -> Groups {
        let mut made = Groups::default();
        for group in groups {
            match group.name.strip_suffix('*') {
                Some(prefix) => made.wildcards.push((prefix.to_string(), group)),
                None => {
                    made.exact.insert(name::fold(&group.name), group);
                }
            }
        }
        made.wildcards.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then(a.cmp(b)));
        made
    }

    /// The group that a client's name means, and what a `*` in its targets stands for.
    pub fn find<'a>(&'a self, model: &'a str) -> Option<(&'a Group, &'a str)> {
        if !self.exact.is_empty()
            && let Some(group) = self.exact.get(&name::fold(model))
        {
            return Some((group, ""));
        }
        self.wildcards.iter().find_map(|(prefix, group)| Some((group, model.strip_prefix(prefix.as_str())?)))
    }

    /// The names that can be listed, in order.
    pub fn listed(&self) -> Vec<&Group> {
        let mut groups: Vec<&Group> = self.exact.values().collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }
}

impl Target {
    /// The model to ask for, when a `*` stands for `rest`.
    pub fn model_for(&self, rest: &str) -> String {
        self.model.replacen('*', rest, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, model: &str) -> Group {
        let target =
            Target { upstream: UpstreamId(0), model: model.into(), weight: 1.0, rpm: None, tpm: None, cost: None };
        Group { name: name.into(), targets: vec![target], fallbacks: vec![], policy: None }
    }

    #[track_caller]
    fn check(wanted: &str, expected: Option<&str>) {
        let groups = Groups::new(vec![
            group("fast", "fern:3b"),
            group("gpt-*", "openai/gpt-*"),
            group("gpt-4*", "big"),
            group("*", "anything"),
        ]);
        let found = groups.find(wanted).map(|(group, rest)| group.targets[0].model_for(rest));
        assert_eq!(found.as_deref(), expected, "{wanted}");
    }

    #[test]
    fn names_and_wildcards() {
        check("fast", Some("fern:3b"));
        check("Fast:latest", Some("fern:3b"));
        check("gpt-3.5", Some("openai/gpt-3.5"));
        check("gpt-4o", Some("big"));
        check("faster", Some("anything"));
    }
}
