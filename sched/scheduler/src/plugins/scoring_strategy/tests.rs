use super::*;

fn strategy(strategy: ScoringStrategyType, resources: &[(&str, i64)]) -> ScoringStrategy {
    let resources: Vec<_> = resources.iter().map(|(name, weight)| ResourceSpec { name: (*name).to_owned(), weight: *weight }).collect();
    ScoringStrategy::new(strategy, &resources)
}

fn shape(points: &[(i32, i32)]) -> ScoringStrategyType {
    let point = |(utilization, score): &(i32, i32)| UtilizationShapePoint { utilization: *utilization, score: *score };
    ScoringStrategyType::RequestedToCapacityRatio(points.iter().map(point).collect())
}

#[test]
fn each_strategy_scores_the_use_of_the_resources() {
    use ScoringStrategyType::{LeastAllocated, MostAllocated};
    const BOTH: &[(&str, i64)] = &[("cpu", 1), ("memory", 1)];
    let rising = || shape(&[(0, 0), (100, 10)]);
    // The requested and the allocatable amount of CPU and of memory.
    let cases = [
        ("the less the better", LeastAllocated, BOTH, (1, 4), (1, 2), 62),
        ("the more the better", MostAllocated, BOTH, (1, 4), (1, 2), 37),
        ("weights", MostAllocated, &[("cpu", 3), ("memory", 1)], (1, 4), (1, 2), 31),
        ("more than there is", LeastAllocated, BOTH, (9, 4), (1, 2), 25),
        ("more than there is, too", MostAllocated, BOTH, (9, 4), (1, 2), 75),
        ("a resource that the node lacks", MostAllocated, BOTH, (1, 4), (0, 0), 25),
        ("a rising shape", rising(), BOTH, (1, 4), (1, 2), 38),
        ("a score of 0 does not count", rising(), BOTH, (0, 4), (1, 2), 50),
        ("a falling shape", shape(&[(0, 10), (100, 0)]), BOTH, (1, 4), (3, 4), 50),
        ("below the first point", shape(&[(40, 2), (60, 8)]), &[("cpu", 1)], (1, 10), (0, 0), 20),
        ("between points", shape(&[(40, 2), (60, 8)]), &[("cpu", 1)], (45, 100), (0, 0), 35),
        ("above the last point", shape(&[(40, 2), (60, 8)]), &[("cpu", 1)], (9, 10), (0, 0), 80),
        ("full", shape(&[(0, 0), (100, 10)]), &[("cpu", 1)], (11, 10), (0, 0), 100),
    ];
    for (name, kind, resources, cpu, memory, wanted) in cases {
        let amounts = |resource: &str| {
            let (requested, allocatable) = if resource == "cpu" { cpu } else { memory };
            (allocatable > 0).then_some(Amounts { allocatable, requested })
        };
        assert_eq!(strategy(kind, resources).score(amounts), wanted, "{name}");
    }
}
