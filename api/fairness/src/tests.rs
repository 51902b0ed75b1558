//! The whole crate under load, on paused time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::*;

pub(crate) fn mandatory() -> Vec<Value> {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]);
    let schema = |name: &str, precedence: i64, groups: Value| {
        json!({"kind": "FlowSchema", "metadata": {"name": name}, "spec": {
            "priorityLevelConfiguration": {"name": name}, "matchingPrecedence": precedence, "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": groups, "resourceRules": everything, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}})
    };
    vec![
        schema("exempt", 1, json!([group("system:masters")])),
        schema("catch-all", 10_000, json!([group("system:authenticated")])),
        json!({"kind": "PriorityLevelConfiguration", "metadata": {"name": "exempt"}, "spec": {"type": "Exempt"}}),
        json!({"kind": "PriorityLevelConfiguration", "metadata": {"name": "catch-all"},
            "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}}}),
    ]
}

pub(crate) fn level(name: &str, shares: u64, more: Value) -> Value {
    let mut limited = json!({"nominalConcurrencyShares": shares,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 16, "handSize": 2, "queueLengthLimit": 10}}});
    limited.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    json!({"kind": "PriorityLevelConfiguration", "metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "spec": {"type": "Limited", "limited": limited}})
}

pub(crate) fn flow_schema(name: &str, level: &str, precedence: i64, user: &str) -> Value {
    json!({"kind": "FlowSchema", "metadata": {"name": name}, "spec": {
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [{"kind": "User", "user": {"name": user}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}})
}

const WAIT_MAX: Duration = Duration::from_secs(15);

/// A server with the given seats and stored objects.
fn fairness(seats: u32, stored: Vec<Value>) -> Arc<Fairness> {
    let fairness = Fairness::new(Limits { seats }, mandatory());
    fairness.configure(&stored.into_iter().map(Arc::new).collect::<Vec<_>>());
    Arc::new(fairness)
}

/// A server with all users in the level `work`, which has nearly all shares.
fn work(seats: u32, more: Value) -> Arc<Fairness> {
    fairness(seats, vec![level("work", 1_000, more), flow_schema("work", "work", 100, "*")])
}

async fn enter(fairness: &Fairness, user: &str, width: u32) -> Result<Seat, Rejected> {
    let (user, attributes) = (UserInfo::new(user, &["system:authenticated"]), Attributes::default());
    let schema = fairness.classify(&user, &attributes).expect("a schema");
    fairness.admit(&schema, &user, &attributes, width, WAIT_MAX).await
}

/// Starts requests of one user at once. Each takes one second.
fn flood(fairness: &Arc<Fairness>, user: &'static str, requests: u32) -> Vec<tokio::task::JoinHandle<Result<Duration, Rejected>>> {
    let one = |_| {
        let fairness = Arc::clone(fairness);
        tokio::spawn(async move {
            let start = Instant::now();
            let seat = enter(&fairness, user, 1).await?;
            let waited = start.elapsed();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(seat);
            Ok(waited)
        })
    };
    (0..requests).map(one).collect()
}

fn counts(fairness: &Fairness, schema: &str) -> stats::Flow {
    fairness.report().flows.into_iter().find(|(name, _, _)| name == schema).expect("known").2
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_user_leaves_another_be() {
    let fairness = work(4, json!({}));
    let flooding = flood(&fairness, "flood", 20);
    tokio::task::yield_now().await;
    assert_eq!(counts(&fairness, "work").executing, 4);
    let start = Instant::now();
    drop(enter(&fairness, "jane", 1).await.expect("a seat"));
    assert!(start.elapsed() < Duration::from_millis(1_100), "jane waits for one seat, not for the flood: {:?}", start.elapsed());
    let mut longest = Duration::ZERO;
    for request in flooding {
        longest = longest.max(request.await.expect("no panic").expect("its turn comes"));
    }
    assert!(longest >= Duration::from_secs(4), "the flood waits for itself: {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn who_finds_the_queues_full_is_rejected() {
    let fairness = work(2, json!({}));
    let flooding = flood(&fairness, "flood", 30);
    let mut refused = 0;
    for request in flooding {
        refused += u32::from(request.await.expect("no panic").is_err_and(|why| why == Rejected::QueueFull));
    }
    // Two requests execute, and the flow may use two queues of ten requests.
    assert_eq!(refused, 8);
    let counts = counts(&fairness, "work");
    assert_eq!((counts.dispatched, counts.inqueue, counts.executing, counts.seats), (22, 0, 0, 0));
    assert_eq!(counts.rejected, [(Rejected::ConcurrencyLimit, 0), (Rejected::QueueFull, 8), (Rejected::TimeOut, 0)]);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let fairness = work(1, json!({}));
    let seat = enter(&fairness, "jane", 1).await.expect("a seat");
    let start = Instant::now();
    assert_eq!(enter(&fairness, "joe", 1).await.expect_err("none is free"), Rejected::TimeOut);
    assert!((WAIT_MAX..WAIT_MAX + Duration::from_millis(10)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(counts(&fairness, "work").inqueue, 0);
    drop(seat);
    drop(enter(&fairness, "joe", 1).await.expect("it is free"));
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_the_queue() {
    let fairness = work(1, json!({}));
    let seat = enter(&fairness, "jane", 1).await.expect("a seat");
    let away = tokio::time::timeout(Duration::from_secs(1), enter(&fairness, "joe", 1)).await;
    assert!(away.is_err());
    let waiting = flood(&fairness, "joe", 1);
    tokio::task::yield_now().await;
    assert_eq!(counts(&fairness, "work").inqueue, 1);
    drop(seat);
    for request in waiting {
        request.await.expect("no panic").expect("the seat is not lost with the one who left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_level_borrows_what_another_lends_and_no_more() {
    let lending = level("rich", 500, json!({"lendablePercent": 50}));
    let stored =
        vec![level("poor", 500, json!({})), lending, flow_schema("poor", "poor", 100, "jane"), flow_schema("rich", "rich", 100, "joe")];
    let fairness = fairness(20, stored);
    let nominal = |name: &str| fairness.report().levels.into_iter().find(|level| level.name == name).expect("known").nominal;
    assert_eq!((nominal("poor"), nominal("rich")), (10, 10));
    let flooding = flood(&fairness, "jane", 20);
    tokio::task::yield_now().await;
    assert_eq!((counts(&fairness, "poor").executing, counts(&fairness, "poor").inqueue), (15, 5));
    let others = flood(&fairness, "joe", 6);
    tokio::task::yield_now().await;
    assert_eq!(counts(&fairness, "rich").executing, 5, "what is not lent is there at once");
    for request in flooding.into_iter().chain(others) {
        request.await.expect("no panic").expect("its turn comes");
    }
    assert!(fairness.report().levels.iter().all(|level| level.executing == 0), "{:?}", fairness.report().levels);
}

#[tokio::test(start_paused = true)]
async fn the_exempt_never_wait_and_the_last_level_lets_nobody_wait() {
    let fairness = fairness(5, Vec::new());
    let (admin, attributes) = (UserInfo::new("admin", &["system:masters"]), Attributes::default());
    let exempt = fairness.classify(&admin, &attributes).expect("a schema");
    assert_eq!(exempt.level_name(), "exempt");
    let mut seats = Vec::new();
    for _ in 0..100 {
        seats.push(fairness.admit(&exempt, &admin, &attributes, 1, WAIT_MAX).await.expect("always"));
    }
    for _ in 0..5 {
        seats.push(enter(&fairness, "jane", 1).await.expect("a seat"));
    }
    assert_eq!(enter(&fairness, "jane", 1).await.expect_err("none left"), Rejected::ConcurrencyLimit);
}

#[tokio::test(start_paused = true)]
async fn a_wide_request_waits_until_there_is_room() {
    let fairness = work(4, json!({}));
    let narrow = flood(&fairness, "jane", 2);
    tokio::task::yield_now().await;
    let start = Instant::now();
    let wide = enter(&fairness, "joe", 9).await.expect("no wider than the level");
    assert!(start.elapsed() >= Duration::from_secs(1), "both others have to end first");
    assert_eq!(counts(&fairness, "work").seats, 4);
    drop(wide);
    for request in narrow {
        request.await.expect("no panic").expect("a seat");
    }
}

#[tokio::test(start_paused = true)]
async fn a_level_that_grows_lets_those_in_who_wait() {
    let fairness = fairness(10, vec![level("work", 5, json!({})), flow_schema("work", "work", 100, "jane")]);
    let flooding = flood(&fairness, "jane", 8);
    tokio::task::yield_now().await;
    assert_eq!((counts(&fairness, "work").executing, counts(&fairness, "work").inqueue), (5, 3));
    let grown = [level("work", 1_000, json!({})), flow_schema("work", "work", 100, "jane")];
    fairness.configure(&grown.map(Arc::new));
    assert_eq!((counts(&fairness, "work").executing, counts(&fairness, "work").inqueue), (8, 0));
    for request in flooding {
        request.await.expect("no panic").expect("a seat");
    }
}
