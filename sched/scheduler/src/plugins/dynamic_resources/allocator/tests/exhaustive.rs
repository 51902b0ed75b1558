//! The search compared with one that tries every choice of devices, on small cases.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::super::fixtures::{DRIVER, claim_with, manager, slice};
use super::run;

/// Units of the counter that the devices of the pool share.
const COUNTER: u8 = 4;
/// The memory of each device.
const MEMORY: u8 = 4;

#[derive(Clone, Debug)]
struct DeviceCase {
    kind: u8,
    is_allocated: bool,
    is_tainted: bool,
    /// Units of the counter that the device consumes.
    units: u8,
    /// The device allows several allocations.
    sharing: Option<SharingCase>,
}

#[derive(Clone, Debug)]
struct SharingCase {
    policy: PolicyCase,
    /// What the claim that has a share consumes.
    consumed: u8,
}

/// Which amounts of the memory of a shared device can be had.
#[derive(Clone, Copy, Debug)]
enum PolicyCase {
    Any,
    /// 1 or 3.
    Values,
    /// From 1 to 3 in steps of 2.
    Range,
}

impl DeviceCase {
    /// What a request for this amount takes of the memory, by trying all amounts.
    fn amount(&self, wanted: Option<u8>) -> Option<u8> {
        match self.sharing.as_ref().map(|sharing| sharing.policy) {
            None => Some(wanted.unwrap_or_default()),
            Some(PolicyCase::Any) => Some(wanted.unwrap_or(MEMORY)),
            Some(PolicyCase::Values | PolicyCase::Range) => match wanted {
                None => Some(1),
                Some(wanted) => (wanted..=MEMORY).find(|amount| [1, 3].contains(amount)),
            },
        }
    }

    /// What claims leave of the memory.
    fn memory_left(&self) -> u8 {
        MEMORY - self.sharing.as_ref().filter(|_| self.is_allocated).map_or(0, |sharing| sharing.consumed)
    }

    /// Whether a request for this amount could have the device if nothing else was chosen.
    fn has(&self, wanted: Option<u8>) -> bool {
        self.amount(wanted).is_some_and(|amount| amount <= self.memory_left())
    }
}

#[derive(Clone, Debug)]
struct AlternativeCase {
    /// The kind of device that is wanted; any without one.
    kind: Option<u8>,
    /// All devices without a number.
    count: Option<usize>,
    /// The amount of memory of each device.
    memory: Option<u8>,
}

#[derive(Clone, Debug)]
struct RequestCase {
    alternatives: Vec<AlternativeCase>,
    admin: bool,
    tolerates: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ConstraintCase {
    None,
    Match,
    Distinct,
}

#[derive(Clone, Debug)]
struct ClaimCase {
    requests: Vec<RequestCase>,
    constraint: ConstraintCase,
}

fn alternative() -> impl Strategy<Value = AlternativeCase> {
    (proptest::option::of(0..2_u8), proptest::option::weighted(0.8, 1..3_usize), proptest::option::weighted(0.4, 0..=MEMORY))
        .prop_map(|(kind, count, memory)| AlternativeCase { kind, count, memory })
}

fn request() -> impl Strategy<Value = RequestCase> {
    (vec(alternative(), 1..3), proptest::bool::weighted(0.2), any::<bool>()).prop_map(|(alternatives, admin, tolerates)| RequestCase {
        admin: admin && alternatives.len() == 1,
        alternatives,
        tolerates,
    })
}

fn case() -> impl Strategy<Value = (Vec<DeviceCase>, Vec<ClaimCase>)> {
    let policy = prop_oneof![Just(PolicyCase::Any), Just(PolicyCase::Values), Just(PolicyCase::Range)];
    let sharing = proptest::option::of((policy, 0..=MEMORY).prop_map(|(policy, consumed)| SharingCase { policy, consumed }));
    let device = (0..2_u8, proptest::bool::weighted(0.2), proptest::bool::weighted(0.2), 0..3_u8, sharing)
        .prop_map(|(kind, is_allocated, is_tainted, units, sharing)| DeviceCase { kind, is_allocated, is_tainted, units, sharing });
    let constraint = prop_oneof![Just(ConstraintCase::None), Just(ConstraintCase::Match), Just(ConstraintCase::Distinct)];
    let claim = (vec(request(), 1..3), constraint).prop_map(|(requests, constraint)| {
        // That a constraint rules out one of all devices is an error, which ends the search.
        let has_all = requests.iter().flat_map(|request| &request.alternatives).any(|alternative| alternative.count.is_none());
        ClaimCase { requests, constraint: if has_all { ConstraintCase::None } else { constraint } }
    });
    (vec(device, 1..5), vec(claim, 1..3))
}

/// One choice: the alternative and the devices of each request of each claim.
type Choice = Vec<Vec<(usize, Vec<usize>)>>;

fn is_valid(devices: &[DeviceCase], claims: &[ClaimCase], choice: &Choice) -> bool {
    let mut users: Vec<Vec<usize>> = devices.iter().map(|_| Vec::new()).collect();
    let used: i32 = devices.iter().filter(|device| device.is_allocated).map(|device| i32::from(device.units)).sum();
    let mut left = i32::from(COUNTER) - used;
    let mut memory_left: Vec<u8> = devices.iter().map(DeviceCase::memory_left).collect();
    for (index, (claim, requests)) in claims.iter().zip(choice).enumerate() {
        let mut kinds = Vec::new();
        for (request, (alternative, chosen)) in claim.requests.iter().zip(requests) {
            let AlternativeCase { kind, count, memory } = &request.alternatives[*alternative];
            let is_selected = |n: &usize| kind.is_none_or(|kind| devices[*n].kind == kind) && devices[*n].has(*memory);
            let selected: Vec<usize> = (0..devices.len()).filter(is_selected).collect();
            let is_wrong_number = match count {
                Some(count) => chosen.len() != *count,
                None => *chosen != selected || selected.is_empty(),
            };
            if is_wrong_number {
                return false;
            }
            for n in chosen {
                let device = &devices[*n];
                let is_shared = device.sharing.is_some();
                let is_free =
                    is_shared || if request.admin { !users[*n].contains(&index) } else { users[*n].is_empty() && !device.is_allocated };
                if !selected.contains(n) || !is_free || device.is_tainted && !request.tolerates {
                    return false;
                }
                if is_shared {
                    let Some(rest) = memory_left[*n].checked_sub(device.amount(*memory).unwrap_or(u8::MAX)) else { return false };
                    memory_left[*n] = rest;
                }
                // A counter that is used up rules out whatever consumes of any counter of the pool. Shares consume it once.
                let consumes = device.units > 0 && !(is_shared && (device.is_allocated || !users[*n].is_empty()));
                users[*n].push(index);
                left -= if consumes { i32::from(device.units) } else { 0 };
                if consumes && left < 0 {
                    return false;
                }
                kinds.push(device.kind);
            }
        }
        let equal = (1..kinds.len()).any(|n| kinds[..n].contains(&kinds[n]));
        let different = kinds.iter().any(|kind| *kind != kinds[0]);
        if claim.constraint == ConstraintCase::Match && different || claim.constraint == ConstraintCase::Distinct && equal {
            return false;
        }
    }
    true
}

/// All choices for one request.
fn of_request(devices: usize, request: &RequestCase) -> Vec<(usize, Vec<usize>)> {
    let subsets = (0..1_usize << devices).map(|bits| (0..devices).filter(|n| bits >> n & 1 == 1).collect::<Vec<_>>());
    let subsets: Vec<Vec<usize>> = subsets.filter(|subset| !subset.is_empty()).collect();
    (0..request.alternatives.len()).flat_map(|alternative| subsets.iter().map(move |subset| (alternative, subset.clone()))).collect()
}

/// Whether any choice is valid.
fn exists(devices: &[DeviceCase], claims: &[ClaimCase]) -> bool {
    let requests: Vec<(usize, &RequestCase)> =
        claims.iter().enumerate().flat_map(|(claim, of)| of.requests.iter().map(move |request| (claim, request))).collect();
    fn try_all(devices: &[DeviceCase], claims: &[ClaimCase], requests: &[(usize, &RequestCase)], choice: &mut Choice) -> bool {
        let Some(((claim, request), rest)) = requests.split_first() else { return is_valid(devices, claims, choice) };
        of_request(devices.len(), request).into_iter().any(|one| {
            let wanted = request.alternatives[one.0].count;
            if wanted.is_some_and(|count| count != one.1.len()) {
                return false;
            }
            choice[*claim].push(one);
            let is_valid = try_all(devices, claims, rest, choice);
            choice[*claim].pop();
            is_valid
        })
    }
    try_all(devices, claims, &requests, &mut claims.iter().map(|_| Vec::new()).collect())
}

fn object_of(device: &DeviceCase, n: usize) -> Value {
    let memory = json!({"memory": {"value": MEMORY.to_string()}});
    let mut object = json!({"name": format!("d{n}"), "attributes": {"kind": {"int": device.kind}}, "capacity": memory});
    if let Some(sharing) = &device.sharing {
        object["allowMultipleAllocations"] = true.into();
        object["capacity"]["memory"]["requestPolicy"] = match sharing.policy {
            PolicyCase::Any => json!({}),
            PolicyCase::Values => json!({"default": "1", "validValues": ["1", "3"]}),
            PolicyCase::Range => json!({"default": "1", "validRange": {"min": "1", "max": "3", "step": "2"}}),
        };
    }
    if device.is_tainted {
        object["taints"] = json!([{"key": "t", "effect": "NoSchedule"}]);
    }
    if device.units > 0 {
        object["consumesCounters"] = json!([{"counterSet": "s", "counters": {"units": {"value": device.units.to_string()}}}]);
    }
    object
}

fn claim_of(claim: &ClaimCase, n: usize) -> Value {
    let fields = |alternative: &AlternativeCase, request: &RequestCase| {
        let mut fields = json!({"deviceClassName": "gpu"});
        if let Some(kind) = alternative.kind {
            fields["selectors"] = json!([{"cel": {"expression": format!("device.attributes['{DRIVER}'].kind == {kind}")}}]);
        }
        match alternative.count {
            Some(count) => fields["count"] = count.into(),
            None => fields["allocationMode"] = "All".into(),
        }
        if let Some(memory) = alternative.memory {
            fields["capacity"] = json!({"requests": {"memory": memory.to_string()}});
        }
        if request.tolerates {
            fields["tolerations"] = json!([{"operator": "Exists"}]);
        }
        fields
    };
    let request_of = |(n, request): (usize, &RequestCase)| {
        if let [one] = request.alternatives.as_slice() {
            let mut exactly = fields(one, request);
            exactly["adminAccess"] = request.admin.into();
            return json!({"name": format!("r{n}"), "exactly": exactly});
        }
        let sub = |(n, alternative): (usize, &AlternativeCase)| {
            let mut sub = fields(alternative, request);
            sub["name"] = format!("s{n}").into();
            sub
        };
        json!({"name": format!("r{n}"), "firstAvailable": request.alternatives.iter().enumerate().map(sub).collect::<Vec<_>>()})
    };
    let requests: Vec<Value> = claim.requests.iter().enumerate().map(request_of).collect();
    let constraints = match claim.constraint {
        ConstraintCase::None => json!([]),
        ConstraintCase::Match => json!([{"matchAttribute": format!("{DRIVER}/kind")}]),
        ConstraintCase::Distinct => json!([{"distinctAttribute": format!("{DRIVER}/kind")}]),
    };
    claim_with(&format!("c{n}"), json!({"requests": requests, "constraints": constraints}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_search_finds_devices_when_there_are_some((devices, claims) in case()) {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
        let of_pool: Vec<Value> = devices.iter().enumerate().map(|(n, device)| object_of(device, n)).collect();
        let sets = json!([{"name": "s", "counters": {"units": {"value": COUNTER.to_string()}}}]);
        let mut counters = slice("counters", json!({"pool": pool, "allNodes": true, "sharedCounters": sets}), Value::Null);
        counters["spec"].as_object_mut().expect("a map").remove("devices");
        let results: Vec<Value> = devices.iter().enumerate().filter(|(_, device)| device.is_allocated).map(|(n, device)| {
            let mut result = json!({"request": "r", "driver": DRIVER, "pool": "p", "device": format!("d{n}")});
            if let Some(sharing) = &device.sharing {
                result["shareID"] = format!("share-{n}").into();
                result["consumedCapacity"] = json!({"memory": sharing.consumed.to_string()});
            }
            result
        }).collect();
        let mut other = claim_with("other", json!({}));
        other["status"] = json!({"allocation": {"devices": {"results": results}}});
        let dra = manager(&[counters, slice("devices", json!({"pool": pool, "nodeName": "n"}), of_pool.into())], &[other]);
        let objects: Vec<Value> = claims.iter().enumerate().map(|(n, claim)| claim_of(claim, n)).collect();
        let result = run(&dra, &objects).expect("no error");
        prop_assert_eq!(result.is_some(), exists(&devices, &claims), "{:?}", result);
        let Some(result) = result else { return Ok(()) };
        let mut choice: Choice = Vec::new();
        for (claim, allocation) in claims.iter().zip(&result) {
            let mut of_claim: Vec<(usize, Vec<usize>)> = claim.requests.iter().map(|_| (0, Vec::new())).collect();
            for one in allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten()) {
                let (request, sub) = one.request.split_once('/').unwrap_or((&one.request, "s0"));
                let number = |text: &str| text[1..].parse::<usize>().expect("a number");
                let entry = &mut of_claim[number(request)];
                entry.0 = number(sub);
                entry.1.push(number(&one.device));
                let memory = claim.requests[number(request)].alternatives[number(sub)].memory;
                let device = &devices[number(&one.device)];
                let consumed = one.consumed_capacity.as_ref().map(|consumed| consumed["memory"].0.clone());
                let amount = device.sharing.as_ref().and_then(|_| device.amount(memory)).map(|amount| amount.to_string());
                prop_assert_eq!(consumed, amount);
            }
            choice.push(of_claim);
        }
        prop_assert!(is_valid(&devices, &claims, &choice), "{:?}", choice);
    }
}
