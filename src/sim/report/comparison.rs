//! Several plans side by side: for each plan and load Warmgate's two own policies, the best of all others there, and
//! the two that look at nothing or at counts alone. As a table for people and as values for programs.

use std::fmt::Write;

use super::Mean;

/// Not among the others of which the best is named.
const OURS: [&str; 2] = ["expected_ttft", "fleet"];

/// In columns of their own, whoever is best.
const PLAIN: [&str; 2] = ["least_in_flight", "round_robin"];

/// In Markdown: first token, mean / p99 in seconds.
pub fn comparison(means: &[Mean]) -> String {
    let columns = OURS.iter().map(|name| format!(" `{name}` |"));
    let plain = PLAIN.iter().map(|name| format!(" {} |", name.replace('_', " ")));
    let heads: String = columns.chain(std::iter::once(" best of the others |".to_string())).chain(plain).collect();
    let mut out = format!("| plan | load |{heads}\n|{}\n", "---|".repeat(2 + OURS.len() + 1 + PLAIN.len()));
    for (index, first) in means.iter().enumerate() {
        let same = |mean: &&Mean| mean.plan == first.plan && mean.rate == first.rate;
        if means.iter().position(|mean| same(&mean)) == Some(index) {
            let here: Vec<&Mean> = means.iter().filter(same).collect();
            line(first, &here, &mut out);
        }
    }
    out
}

fn line(first: &Mean, here: &[&Mean], out: &mut String) {
    let cell = |name: &str| here.iter().find(|mean| mean.policy == name).map_or(String::new(), |mean| times(mean));
    let others = here.iter().filter(|mean| !OURS.contains(&mean.policy));
    let best = others.min_by(|a, b| a.summary.ttft_mean_s.total_cmp(&b.summary.ttft_mean_s));
    let best = best.map_or(String::new(), |best| format!("{} (`{}`)", times(best), best.policy));
    let (ours, plain) = (OURS.map(cell), PLAIN.map(cell));
    // Writing to a string cannot fail.
    let _ =
        writeln!(out, "| {} | {:.2} | {} | {best} | {} |", first.plan, first.load, ours.join(" | "), plain.join(" | "));
}

fn times(mean: &Mean) -> String {
    let refused = mean.summary.refused;
    let refused = if refused > 0 { format!(", {refused} refused") } else { String::new() };
    format!("{} / {}{refused}", short(mean.summary.ttft_mean_s), short(mean.summary.ttft_p99_s))
}

fn short(seconds: f64) -> String {
    match seconds {
        long if long >= 10.0 => format!("{long:.0}"),
        middle if middle >= 1.0 => format!("{middle:.1}"),
        short => format!("{short:.2}"),
    }
}

/// Means over the seeds, with a head.
pub fn as_csv(means: &[Mean]) -> String {
    let head = "plan,policy,load,rate,seeds,requests,refused,cached_share,ttft_mean_s,ttft_p50_s,ttft_p90_s,ttft_p99_s,\
                total_mean_s,hottest,busiest,fairness,loads\n";
    let mut out = head.to_string();
    for Mean { plan, policy, rate, load, runs, summary } in means {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{plan},{policy},{load:.3},{rate:.3},{runs},{},{},{:.4},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{}",
            summary.requests,
            summary.refused,
            summary.cached_share,
            summary.ttft_mean_s,
            summary.ttft_p50_s,
            summary.ttft_p90_s,
            summary.ttft_p99_s,
            summary.total_mean_s,
            summary.hottest,
            summary.busiest,
            summary.fairness,
            summary.loads
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::run::record::Summary;

    #[test]
    fn the_best_of_the_others_is_named() {
        let mean = |plan: &str, policy, ttft_mean_s| Mean {
            plan: plan.into(),
            policy,
            rate: 1.0,
            load: 0.5,
            runs: 1,
            summary: Summary { ttft_mean_s, ttft_p99_s: 12.3, ..Summary::default() },
        };
        let means = [
            mean("a", "fleet", 1.5),
            mean("a", "round_robin", 4.0),
            mean("a", "herd", 2.0),
            mean("b", "expected_ttft", 0.25),
        ];
        let table = comparison(&means);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[2], "| a | 0.50 |  | 1.5 / 12 | 2.0 / 12 (`herd`) |  | 4.0 / 12 |");
        assert_eq!(lines[3], "| b | 0.50 | 0.25 / 12 |  |  |  |  |");
        assert_eq!(lines.len(), 4);
        assert_eq!(as_csv(&means).lines().count(), 5);
    }
}
