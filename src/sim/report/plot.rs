//! The plot: mean and slow first tokens of every policy, as bars, or over the rates where there are several.
//!
//! Plain SVG. Colours are said by classes with one set for light pages and one for dark.

use std::fmt::Write;

use super::Mean;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 9.0;
const ROW: f64 = 30.0;
const TOP: f64 = 56.0;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}.soft{fill:#656d76}
.mean{fill:#0969da}.slow{fill:#bc4c00}.axis{stroke:#d0d7de}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#8d96a0}.mean{fill:#4493f8}.slow{fill:#f0883e}.axis{stroke:#3d444d}}";

/// Mean (first bar) and p99 (second) of the time to the first token, on a logarithmic axis.
pub fn plot(title: &str, means: &[Mean]) -> String {
    let height = TOP + ROW * means.len() as f64 + 40.0;
    let axis = Axis::over(means.iter().flat_map(|mean| [mean.summary.ttft_mean_s, mean.summary.ttft_p99_s]));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"12\" y=\"22\">{}</text>\n\
         <text class=\"soft\" x=\"12\" y=\"40\">seconds to the first token: \
         <tspan class=\"mean\">mean</tspan> and <tspan class=\"slow\">p99</tspan>; shorter is better, the axis is logarithmic</text>\n",
        escaped(title)
    );
    for tick in axis.ticks() {
        let (x, bottom) = (axis.x(tick), height - 34.0);
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 16.0
        );
    }
    let rates = means.windows(2).any(|pair| pair[0].rate != pair[1].rate);
    for (index, mean) in means.iter().enumerate() {
        let y = TOP + ROW * index as f64 + 6.0;
        let rate = if rates { format!(" x{}", (1000.0 * mean.rate).round() / 1000.0) } else { String::new() };
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}{rate}</text>",
            LEFT - 8.0,
            y + BAR + 4.0,
            escaped(mean.policy)
        );
        for (class, seconds, y) in
            [("mean", mean.summary.ttft_mean_s, y), ("slow", mean.summary.ttft_p99_s, y + BAR + 1.0)]
        {
            let end = axis.x(seconds);
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\">{seconds:.2}</text>",
                end - LEFT,
                end + 4.0,
                y + BAR
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Seconds as places, from one power of ten to another.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (i32::MAX, i32::MIN);
        for value in values.filter(|value| *value > 0.0) {
            low = low.min(value.log10().floor() as i32);
            high = high.max(value.log10().ceil() as i32);
        }
        if low > high { Axis { low: 0, high: 1 } } else { Axis { low, high: high.max(low + 1) } }
    }

    fn x(&self, seconds: f64) -> f64 {
        let share = (seconds.max(f64::MIN_POSITIVE).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::run::record::Summary;

    #[test]
    fn a_bar_for_each_and_both_pages() {
        let summary = Summary { ttft_mean_s: 1.0, ttft_p99_s: 30.0, ..Summary::default() };
        let svg = plot("a < b", &[Mean { plan: "a".into(), policy: "fleet", rate: 1.0, load: 0.5, runs: 1, summary }]);
        assert!(svg.contains("a &lt; b") && svg.contains("prefers-color-scheme:dark"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
}
