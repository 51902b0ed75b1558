//! `cron`: a number of replicas between two times of a schedule.

use api_model::cron::{self, Schedule};
use api_model::message::Message;
use jiff::Timestamp;

use super::{Config, Sample};
use crate::keda::params::Params;

/// The settings.
pub struct Cron {
    timezone: String,
    texts: [String; 2],
    start: Schedule,
    end: Schedule,
    replicas: i64,
}

impl Cron {
    /// Reads the settings.
    pub fn parse(config: &Config<'_>) -> Result<Self, Message> {
        let mut params = Params::new(&config.spec.metadata);
        let [start, end, timezone] = ["start", "end", "timezone"].map(|name| params.required(name));
        let replicas = params.integer("desiredReplicas");
        let parsed = [("start", start), ("end", end)].map(|(name, text)| match schedule(text) {
            Ok(schedule) => Some(schedule),
            Err(why) => {
                params.fail(format!("error parsing {name} schedule: {why}"));
                None
            }
        });
        if start == end && !start.is_empty() {
            params.fail("start and end can not have exactly same time input");
        }
        if replicas == 0 && config.spec.metadata.contains_key("desiredReplicas") {
            params.fail("no desiredReplicas specified");
        }
        let problem = |why: Message| Message::from(format!("error parsing cron metadata: {why}"));
        params.finish().map_err(problem)?;
        let [Some(start_at), Some(end_at)] = parsed else { return Err(problem("no schedule".into())) };
        let texts = [start, end].map(str::to_owned);
        Ok(Self { timezone: timezone.to_owned(), texts, start: start_at, end: end_at, replicas })
    }

    /// The name of the metric.
    pub fn metric_name(&self) -> String {
        let [start, end] = &self.texts;
        format!("cron-{}-{}-{}", self.timezone, plain(start), plain(end))
    }

    /// The replicas, if the next end is nearer than the next start.
    pub fn read(&self, now: Timestamp) -> Result<Sample, Message> {
        let name = &self.timezone;
        let zone = cron::time_zone(name).ok_or_else(|| format!("unable to load timezone: unknown time zone {name}"))?;
        let (start, end) = (self.start.next(now, &zone), self.end.next(now, &zone));
        // A schedule that never comes counts, as in Go, as one that has passed long ago.
        let is_within = end.is_some() && start.is_none_or(|start| end.is_some_and(|end| start >= end));
        let milli = if is_within { self.replicas.saturating_mul(1_000).max(0) } else { 0 };
        Ok(Sample { milli, is_active: is_within })
    }
}

/// Upstream's parser knows five fields alone.
fn schedule(text: &str) -> Result<Schedule, Message> {
    if text.starts_with('@') {
        return Err(format!("parser does not accept descriptors: {text}").into());
    }
    Schedule::parse(text)
}

/// A schedule as a part of a metric's name.
fn plain(schedule: &str) -> String {
    schedule.replace(' ', "").replace('*', "x").replace('/', "Sl").replace('?', "Qm").replace(',', "Cm")
}
