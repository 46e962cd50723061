//! `docs/metrics.md` is made of what the code declares, and is as the code has it.

use std::fmt::Write;
use std::path::Path;

use warmgate::edge::metrics::Metrics;
use warmgate::edge::metrics::family::{Family, Label, Values};

const UPDATE: &str = "WARMGATE_UPDATE_DOCS";

#[test]
fn the_table_of_metrics_is_as_the_code_has_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let made = page(&Metrics::new().expect("metrics").families);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &made).expect("the page");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/metrics.md is out of date: {UPDATE}=1 cargo test --test it metric_table");
}

fn page(families: &[Family]) -> String {
    let mut page = String::from(INTRODUCTION);
    page += "\n| name | kind | labels | unit | what it says |\n|---|---|---|---|---|\n";
    let mut families: Vec<&Family> = families.iter().collect();
    families.sort_by_key(|family| family.name);
    for Family { name, kind, help, labels } in &families {
        let labels = labels.iter().map(|label| format!("`{}`", label.name)).collect::<Vec<_>>().join(" ");
        let _ = writeln!(page, "| `{name}` | {} | {labels} | {} | {help} |", kind.name(), unit(name));
    }
    page += LABELS;
    for family in &families {
        for Label { name, values } in &family.labels {
            if *name == "version" {
                let _ = writeln!(page, "| `{}` | `{name}` | as `warmgate -V` says it |", family.name);
            } else if let Values::Fixed(values) = values {
                let values = values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" ");
                let _ = writeln!(page, "| `{}` | `{name}` | {values} |", family.name);
            }
        }
    }
    page
}

/// By the name's last words, as Prometheus has it.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name {
        _ if name.ends_with("tokens_per_second") => "tokens/s",
        _ if name.ends_with("_seconds") => "s",
        _ if name.ends_with("_bytes") => "bytes",
        _ if name.ends_with("_tokens") => "tokens",
        _ => "",
    }
}

const INTRODUCTION: &str = "# Metrics

`/metrics` of the admin port tells these in Prometheus' text form. This page is made of the code:
`WARMGATE_UPDATE_DOCS=1 cargo test --test it metric_table` writes it, and a test fails when it differs.
`conf/grafana/` has a dashboard and alert rules over them.

- `node` is an upstream's name as it is configured, with the rank where ranks are told apart (`gpus/2`); all
  addresses behind a discovered name are one. It is empty where no node was asked.
- `model` is a model as its node lists it. Where no node was asked it is the configured name, or as the first
  node that has it lists it; `other` stands for names that nobody knows and, beyond 256 models, for the rest.
- `tenant` is a tenant as it is configured.

No label has a value that a client makes up. Series of tenants that a reload takes away go at once; those of nodes
and models that are there no more are told for five minutes more, so that their last counts are collected, and then
go. Histograms of times reach from 10 ms to 15 min. Gauges are as things stand when `/metrics` is asked for; what is
told of models is told of those that are in memory or in use.
";

const LABELS: &str = "
## Values of the other labels

| name | label | values |
|---|---|---|
";
