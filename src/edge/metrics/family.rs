//! Families of series, as they are registered: each with its kind, its help and where its label values come from.
//!
//! What is told here is what `docs/metrics.md` and the checks of dashboards and alerts are made of, so that
//! nothing can be counted that they do not know.

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// All series of one name.
#[derive(Clone, Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub labels: Vec<Label>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// What bounds the values of a label. Nothing that a client writes is among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Upstreams as they are configured, with their ranks.
    Nodes,
    /// Models as nodes list them, configured names, and `other`; so many at most.
    Models,
    /// Tenants as they are configured.
    Tenants,
    /// These and no others.
    Fixed(Vec<&'static str>),
}

pub fn node() -> Label {
    Label { name: "node", values: Values::Nodes }
}

pub fn model() -> Label {
    Label { name: "model", values: Values::Models }
}

pub fn tenant() -> Label {
    Label { name: "tenant", values: Values::Tenants }
}

pub fn one_of(name: &'static str, values: impl IntoIterator<Item = &'static str>) -> Label {
    Label { name, values: Values::Fixed(values.into_iter().collect()) }
}

/// From a warm cache hit to a cold load of a large model.
pub const SECONDS: [f64; 14] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];

/// From a large model on a processor to a small one on a large accelerator.
pub const TOKENS_A_SECOND: [f64; 12] = [1.0, 2.5, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0];

/// A registry, and what was registered with it.
#[derive(Default)]
pub struct Register {
    pub registry: Registry,
    pub families: Vec<Family>,
}

impl Register {
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::new(name, help)?, Kind::Counter, name, help, &[])
    }

    pub fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[Label],
    ) -> prometheus::Result<IntCounterVec> {
        let made = IntCounterVec::new(Opts::new(name, help), &names(labels))?;
        self.add(made, Kind::Counter, name, help, labels)
    }

    /// Of one label with fixed values, all of them there from the start: a first one is seen as a rise.
    pub fn counters_from_zero(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: Label,
    ) -> prometheus::Result<IntCounterVec> {
        let made = self.counters(name, help, std::slice::from_ref(&label))?;
        if let Values::Fixed(values) = &label.values {
            values.iter().for_each(|value| drop(made.with_label_values(&[*value])));
        }
        Ok(made)
    }

    /// Of what is no whole number.
    pub fn sum(&mut self, name: &'static str, help: &'static str) -> prometheus::Result<Counter> {
        self.add(Counter::new(name, help)?, Kind::Counter, name, help, &[])
    }

    pub fn sums(&mut self, name: &'static str, help: &'static str, labels: &[Label]) -> prometheus::Result<CounterVec> {
        let made = CounterVec::new(Opts::new(name, help), &names(labels))?;
        self.add(made, Kind::Counter, name, help, labels)
    }

    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::new(name, help)?, Kind::Gauge, name, help, &[])
    }

    pub fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[Label],
    ) -> prometheus::Result<IntGaugeVec> {
        let made = IntGaugeVec::new(Opts::new(name, help), &names(labels))?;
        self.add(made, Kind::Gauge, name, help, labels)
    }

    pub fn histograms(
        &mut self,
        name: &'static str,
        help: &'static str,
        buckets: &[f64],
        labels: &[Label],
    ) -> prometheus::Result<HistogramVec> {
        let made = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), &names(labels))?;
        self.add(made, Kind::Histogram, name, help, labels)
    }

    fn add<C: Collector + Clone + 'static>(
        &mut self,
        made: C,
        kind: Kind,
        name: &'static str,
        help: &'static str,
        labels: &[Label],
    ) -> prometheus::Result<C> {
        self.registry.register(Box::new(made.clone()))?;
        self.families.push(Family { name, kind, help, labels: labels.to_vec() });
        Ok(made)
    }
}

fn names(labels: &[Label]) -> Vec<&'static str> {
    labels.iter().map(|label| label.name).collect()
}

impl Kind {
    /// As Prometheus calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}
