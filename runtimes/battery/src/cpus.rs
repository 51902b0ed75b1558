//! The CPUs of a container.

use std::collections::BTreeSet;

use crate::*;

/// All threads of a container run on the CPUs of its spec, and on others as soon as they are set.
pub async fn a_container_runs_on_its_cpus_and_then_on_others(harness: &dyn Harness) {
    let all = cpus_of("self");
    let (first, last) = ends(&all);
    let mut spec = spec_of(harness, "pinned", Program::Spin);
    spec.resources.cpuset_cpus = Some(last.clone());
    let runtime = harness.runtime();
    let is_pinned = has_cpusets();
    if harness.abilities().real && !is_pinned {
        assert!(within(runtime.create(&spec)).await.is_err() || within(runtime.start(&spec.id)).await.is_err(), "it is not ignored");
        within(runtime.remove(&spec.id)).await.expect("remove");
        return;
    }
    within(runtime.create(&spec)).await.expect("create");
    assert!(within(runtime.set_cpus(&spec.id, &first)).await.is_err(), "it has not been started");
    within(runtime.start(&spec.id)).await.expect("start");
    let pinned = Running { runtime, spec };
    let process = pid(&pinned.status().await);
    let real = harness.abilities().real;
    if real {
        assert_eq!(threads_cpus(process), [last.clone()].into());
    }
    for cpus in [&first, &all, &last] {
        within(pinned.runtime.set_cpus(pinned.id(), cpus)).await.expect("set");
        if real {
            assert_eq!(threads_cpus(process), [cpus.clone()].into());
        }
    }
    // A new runtime over the same directories knows the container's cgroup too.
    within(harness.reopened().set_cpus(pinned.id(), &first)).await.expect("set");
    if real {
        assert_eq!(threads_cpus(process), [first.clone()].into());
    }
    within(pinned.runtime.signal(pinned.id(), 9)).await.expect("signal");
    pinned.end().await;
    within(pinned.runtime.set_cpus(pinned.id(), &last)).await.expect("an ended container is no error");
    pinned.remove().await;
    if real {
        let group = runtimes_host::cgroup::Cgroups::detect().and_then(|cgroups| cgroups.group(&pinned.spec.cgroup)).expect("cgroup");
        assert!(!group.exists(), "no cgroup is left");
    }
}

fn has_cpusets() -> bool {
    runtimes_host::cgroup::Cgroups::detect().is_ok_and(|cgroups| cgroups.has_cpusets())
}

/// The CPUs that a process or thread may use, as the kernel lists them.
fn cpus_of(process: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a status");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
    list.trim().to_owned()
}

/// The first and the last CPU of a list.
fn ends(list: &str) -> (String, String) {
    let mut numbers = list.split([',', '-']);
    let first = numbers.next().unwrap_or_default().to_owned();
    (first.clone(), numbers.next_back().map_or(first, str::to_owned))
}

/// What the threads of a process may use.
fn threads_cpus(process: i32) -> BTreeSet<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    tasks.map(|task| cpus_of(&format!("{process}/task/{}", task.expect("a thread").file_name().display()))).collect()
}
