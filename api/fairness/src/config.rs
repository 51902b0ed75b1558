//! The table of schemas and levels, from the stored FlowSchemas and PriorityLevelConfigurations.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::meta;
use api_model::request::{Attributes, UserInfo};
use serde_json::Value;

use crate::flow_schema::FlowSchema;
use crate::json::{list, text};
use crate::level::{Level, Settings, Shares};
use crate::queues::Queuing;
use crate::rule::Rule;
use crate::stats::{Report, Stats};

/// The limits of the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Seats of all levels together: upstream's `--max-requests-inflight` and
    /// `--max-mutating-requests-inflight`.
    pub seats: u32,
}

/// One state of the configuration. It is immutable; the next state takes over the levels.
pub(crate) struct Table {
    schemas: Vec<Arc<FlowSchema>>,
    levels: BTreeMap<String, Arc<Level>>,
    stats: BTreeMap<(String, String), Arc<Stats>>,
}

impl Table {
    /// Creates the table from the stored objects; `mandatory` objects replace missing ones. Levels and counters of
    /// `before` continue.
    pub(crate) fn new(limits: &Limits, mandatory: &[Value], stored: &[Arc<Value>], before: Option<&Self>) -> Self {
        let find = |kind: &str| -> BTreeMap<String, &Value> {
            let all = mandatory.iter().chain(stored.iter().map(|object| &**object));
            all.filter(|object| text(object, "/kind") == kind).map(|object| (meta::name(object).to_owned(), object)).collect()
        };
        let configured = find("PriorityLevelConfiguration");
        let total: u64 = configured.values().map(|level| shares(level).nominal).sum();
        let mut levels = BTreeMap::new();
        for (name, configuration) in &configured {
            let level = before.and_then(|before| before.levels.get(name).cloned());
            let level = level.unwrap_or_else(|| Arc::new(Level::new(name)));
            level.configure(&settings(configuration, limits.seats, total), meta::uid(configuration));
            levels.insert(name.clone(), level);
        }
        let mut table = Self { schemas: Vec::new(), levels, stats: before.map(|before| before.stats.clone()).unwrap_or_default() };
        for (name, configuration) in find("FlowSchema") {
            table.add_schema(&name, configuration);
        }
        table.schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        table
    }

    /// Adds a schema. A schema whose level does not exist is ignored.
    fn add_schema(&mut self, name: &str, configuration: &Value) {
        let level_name = text(configuration, "/spec/priorityLevelConfiguration/name");
        let Some(level) = self.levels.get(level_name) else { return };
        let stats = self.stats.entry((name.to_owned(), level_name.to_owned())).or_default();
        self.schemas.push(Arc::new(FlowSchema {
            name: name.to_owned(),
            uid: header(meta::uid(configuration)),
            precedence: configuration.pointer("/spec/matchingPrecedence").and_then(Value::as_i64).unwrap_or_default(),
            distinguisher: text(configuration, "/spec/distinguisherMethod/type").into(),
            rules: list(configuration, "/spec/rules").iter().map(Rule::from).collect(),
            level: Arc::clone(level),
            level_uid: level.uid(),
            stats: Arc::clone(stats),
        }));
    }

    /// The first schema that matches, else the mandatory schema `catch-all`.
    pub(crate) fn classify(&self, user: &UserInfo, attributes: &Attributes) -> Option<&Arc<FlowSchema>> {
        let found = self.schemas.iter().find(|schema| schema.matches(user, attributes));
        found.or_else(|| self.schemas.iter().find(|schema| schema.name == "catch-all"))
    }

    /// The levels with a limit, which can lend and borrow seats.
    pub(crate) fn limited(&self) -> Arc<[Arc<Level>]> {
        self.levels.values().filter(|level| !level.is_exempt()).cloned().collect()
    }

    pub(crate) fn report(&self) -> Report {
        let flows = self.stats.iter().map(|((schema, level), stats)| (schema.clone(), level.clone(), stats.read())).collect();
        let levels = self.levels.values().map(|level| level.report()).collect();
        Report { flows, levels }
    }
}

fn shares(level: &Value) -> Shares {
    let part = if text(level, "/spec/type") == "Exempt" { "exempt" } else { "limited" };
    let number = |field: &str| level.pointer(&format!("/spec/{part}/{field}")).and_then(Value::as_u64);
    Shares {
        nominal: number("nominalConcurrencyShares").unwrap_or_default(),
        lendable_percent: number("lendablePercent").unwrap_or_default(),
        borrowing_percent: number("borrowingLimitPercent"),
    }
}

fn settings(level: &Value, seats: u32, total_shares: u64) -> Settings {
    let response = |field: &str| level.pointer(&format!("/spec/limited/limitResponse/{field}"));
    let number = |field: &str| response(&format!("queuing/{field}")).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let queuing = (response("type").and_then(Value::as_str) == Some("Queue")).then(|| Queuing {
        queues: number("queues").unwrap_or(64),
        hand_size: number("handSize").unwrap_or(8),
        queue_len_max: number("queueLengthLimit").unwrap_or(50),
    });
    Settings::new(text(level, "/spec/type") == "Exempt", seats, shares(level), total_shares, queuing)
}

/// A uid as a response header. A mandatory object that is not stored has no uid.
fn header(uid: &str) -> http::HeaderValue {
    http::HeaderValue::from_str(uid).unwrap_or(http::HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::{flow_schema, level, mandatory};

    #[test]
    fn seats_are_dealt_by_shares() {
        let stored = [level("wide", 35, json!({"lendablePercent": 50, "borrowingLimitPercent": 20})), level("narrow", 10, json!({}))];
        let stored: Vec<Arc<Value>> = stored.into_iter().map(Arc::new).collect();
        let table = Table::new(&Limits { seats: 600 }, &mandatory(), &stored, None);
        let dealt: Vec<_> =
            table.report().levels.into_iter().map(|level| (level.name, level.nominal, level.lendable, level.borrowing)).collect();
        assert_eq!(
            dealt,
            [
                ("catch-all".to_owned(), 60, 0, None),
                ("exempt".to_owned(), 0, 0, None),
                ("narrow".to_owned(), 120, 0, None),
                ("wide".to_owned(), 420, 210, Some(84)),
            ]
        );
    }

    #[test]
    fn the_lowest_precedence_that_matches_wins_and_dangling_schemas_do_not_count() {
        let stored = [
            level("mine", 10, json!({})),
            flow_schema("dangling", "nowhere", 10, "jane"),
            flow_schema("late", "mine", 30, "jane"),
            flow_schema("b", "mine", 20, "jane"),
            flow_schema("a", "mine", 20, "jane"),
        ];
        let stored: Vec<Arc<Value>> = stored.into_iter().map(Arc::new).collect();
        let table = Table::new(&Limits { seats: 600 }, &mandatory(), &stored, None);
        let schema = |user: &str, group: &str| {
            table.classify(&UserInfo::new(user, &[group]), &Attributes::default()).expect("a schema").name.clone()
        };
        assert_eq!(schema("jane", "system:authenticated"), "a");
        assert_eq!(schema("joe", "system:authenticated"), "catch-all");
        assert_eq!(schema("joe", "system:masters"), "exempt");
        assert_eq!(schema("joe", "nobody"), "catch-all");
    }
}
