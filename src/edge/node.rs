//! A row: what a request can be sent to, and what is counted by itself.
//!
//! Most sites are one row. Where the ranks behind a URL are told apart, each is a row of its own, and all
//! else that is known of them is their site's. A row and its upstream in the fleet go by the same id.

use std::ops::Deref;
use std::sync::Arc;

use super::site::Site;
use crate::config::RANK_MARK;
use crate::routing::fleet::UpstreamId;

pub struct Node {
    pub id: UpstreamId,
    pub name: String,
    /// What metrics call it: a name that the configuration bounds, while addresses come and go.
    pub label: String,
    /// Its number among the ranks of its site, where they are told apart.
    pub rank: Option<u32>,
    pub site: Arc<Site>,
}

impl Node {
    /// The rows of a site.
    pub fn all_of(site: &Arc<Site>) -> Vec<Arc<Node>> {
        let node = |(id, rank): (&UpstreamId, u32)| {
            let rank = site.configured.data_parallel.map(|_| rank);
            let (name, label) = (row_name(&site.name, rank), row_name(&site.configured.name, rank));
            Arc::new(Node { id: *id, name, label, rank, site: site.clone() })
        };
        site.rows.iter().zip(0..).map(node).collect()
    }

    /// Whether it is what somebody means by that name: its own, its site's or its upstream's.
    pub fn goes_by(&self, name: &str) -> bool {
        [&self.name, &self.site.name, &self.site.configured.name].iter().any(|own| *own == name)
    }

    /// The header that makes the engine use this rank.
    pub fn steering(&self) -> Option<(&'static str, u32)> {
        self.engine.get()?.rank_header.zip(self.rank)
    }
}

/// How a row is called in headers and on screens.
pub fn row_name(site: &str, rank: Option<u32>) -> String {
    rank.map_or_else(|| site.to_string(), |rank| format!("{site}{RANK_MARK}{rank}"))
}

/// All that is known of its site.
impl Deref for Node {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}
