//! Huge pages: the node reports those of its machine, a container has no more than its limit, and volumes have them as files.

use std::fs;

use nix::libc;
use serde_json::Value;
use tests::inject::Injected;
use tests::{Kubectl, eventually};

use super::pids;

/// Two containers that share a Pod and not its pages, a Pod that wants more than the machine has, a guest that cannot write to such a
/// volume, and one that only reads it.
pub(super) const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: pages}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: huge, emptyDir: {medium: HugePages, sizeLimit: 2Mi}}]
  containers:
    - name: own
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      env: [{name: PAGES_MIB, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 1Mi}}}]
      resources: {limits: {memory: 16Mi, hugepages-2Mi: 4Mi}}
      volumeMounts: [{name: huge, mountPath: /huge}]
    - {name: none, image: "samples/tools:latest", imagePullPolicy: Never, command: [sleep, "1000000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sleep, "1000000"]
      resources: {limits: {memory: 16Mi, hugepages-2Mi: 1Ti}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  volumes: [{name: huge, emptyDir: {medium: HugePages-2Mi}}]
  containers:
    - name: guest
      image: samples/web:latest
      imagePullPolicy: Never
      resources: {limits: {memory: 64Mi, hugepages-2Mi: 2Mi}}
      volumeMounts: [{name: huge, mountPath: /huge}]
    - {name: reader, image: "samples/web:latest", imagePullPolicy: Never, volumeMounts: [{name: huge, mountPath: /huge, readOnly: true}]}
"#;

/// The machine's number of pages of this size.
const NUMBER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Makes the kernel move memory together, so that it finds more whole pages. Not in every kernel.
const COMPACT: &str = "/proc/sys/vm/compact_memory";
const PAGE_BYTES: u64 = 2 << 20;

/// Pages that the machine has for the time of a test, beside those that it had.
pub(super) struct Reserved {
    before: u64,
}

impl Reserved {
    pub(super) fn further(pages: u64) -> Self {
        let reserved = Self { before: number() };
        let wanted = reserved.before + pages;
        // The kernel reserves as many as it finds.
        eventually("the machine's memory has room for the huge pages", || {
            let _compacted = fs::write(COMPACT, "1");
            fs::write(NUMBER, wanted.to_string()).expect("reserving huge pages");
            if number() == wanted { Ok(()) } else { Err(format!("{} of {wanted} pages", number())) }
        });
        reserved
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // A failed test has its own message.
        let _restored = fs::write(NUMBER, self.before.to_string());
    }
}

fn number() -> u64 {
    fs::read_to_string(NUMBER).expect("a kernel with huge pages of 2 MiB").trim().parse().expect("a number")
}

pub(super) fn the_node_has_them(kubectl: &Kubectl<'_>) {
    let status = kubectl.field("nodes", "/items/0/status");
    let bytes = |list: &str, name: &str| bytes(status[list][name].as_str().unwrap_or_default());
    let of_pages = number() * PAGE_BYTES;
    assert_eq!(["capacity", "allocatable"].map(|list| bytes(list, "hugepages-2Mi")), [of_pages; 2], "{status}");
    let names = status["capacity"].as_object().into_iter().flatten().map(|(name, _)| name).filter(|name| name.starts_with("hugepages-"));
    let all_pages: u64 = names.map(|name| bytes("capacity", name)).sum();
    assert_eq!(bytes("capacity", "memory") - bytes("allocatable", "memory"), all_pages, "{status}");
}

/// The value of a quantity such as `8Mi`.
fn bytes(quantity: &str) -> u64 {
    let suffixes = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];
    let (number, shift) =
        suffixes.iter().find_map(|(suffix, shift)| Some((quantity.strip_suffix(suffix)?, *shift))).unwrap_or((quantity, 0));
    number.parse::<u64>().unwrap_or_else(|error| panic!("{quantity:?}: {error}")) << shift
}

pub(super) fn a_container_has_no_more_than_its_limit(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.run(&["exec", "pages", "-c", "own", "--", "sh", "-c", "echo $PAGES_MIB"]).ok(), "4\n");
    let refused = -i64::from(libc::ENOMEM);
    let (mut own, mut none) = (process(kubectl, "own"), process(kubectl, "none"));
    assert!(map(&mut own, 2) > 0, "the container's limit is two pages");
    assert_eq!([map(&mut own, 3), map(&mut none, 1)], [refused; 2], "{} pages are free", number());
}

/// Takes over the first process of a container of the Pod.
fn process(kubectl: &Kubectl<'_>, container: &str) -> Injected {
    let pids = pids(&kubectl.container("pages", container));
    Injected::take_over(*pids.first().expect("a process"))
}

/// Maps this many pages and gives them back; the kernel's answer.
fn map(process: &mut Injected, pages: u64) -> i64 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB);
    let len = pages * PAGE_BYTES;
    let address = process.call(libc::SYS_mmap, &[0, len, access as u64, kind as u64, u64::MAX, 0]);
    if let Ok(address @ 1..) = u64::try_from(address) {
        assert_eq!(process.call(libc::SYS_munmap, &[address, len]), 0);
    }
    address
}

pub(super) fn a_volume_has_them_as_files(kubectl: &Kubectl<'_>) {
    let inside = |script: &str| kubectl.run(&["exec", "pages", "-c", "own", "--", "sh", "-c", script]);
    let mounts = inside("grep /huge /proc/mounts").ok();
    assert!(mounts.contains(" /huge hugetlbfs ") && mounts.contains("pagesize=2M"), "{mounts}");
    inside("busybox fallocate -l 2097152 /huge/page && rm /huge/page").ok();
    let full = inside("busybox fallocate -l 4194304 /huge/pages").fails();
    assert!(full.contains("No space left on device"), "the volume has a sizeLimit: {full}");
}

pub(super) fn a_pod_that_cannot_have_them_waits(kubectl: &Kubectl<'_>) {
    eventually("no node has so many", || {
        let message = kubectl.condition("pod/greedy", "PodScheduled")["message"].take();
        if message.as_str().is_some_and(|text| text.contains("1 Insufficient hugepages-2Mi")) { Ok(()) } else { Err(message.to_string()) }
    });
    assert_eq!(kubectl.field("pod/greedy", "/status/phase"), Value::from("Pending"));
    kubectl.until_waiting("writer", "CreateContainerConfigError", "is of huge pages, which only a memory map");
    eventually("a guest reads", || {
        let status = kubectl.container("writer", "reader");
        if status["state"]["running"].is_object() { Ok(()) } else { Err(status.to_string()) }
    });
}
