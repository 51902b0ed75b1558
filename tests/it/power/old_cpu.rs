//! A machine with an older CPU than before, as when a disk moves to an older machine, or a virtual machine to another host. The machine
//! code of before may have instructions that this CPU lacks, so the node compiles every module again. Guests with vector instructions
//! run, too.

use std::collections::BTreeSet;

use tests::cluster::{programs, project};
use tests::machine::{DATA, Machine};

/// The files of machine code that shims run.
pub(super) fn codes_in_use(machine: &mut Machine) -> BTreeSet<String> {
    let lines = machine.run("for shim in $(pgrep skiff-shim); do tr '\\0' '\\n' < /proc/$shim/cmdline | grep 'cwasm$'; done; true").ok();
    let codes: BTreeSet<String> = lines.lines().map(str::to_owned).collect();
    assert!(!codes.is_empty(), "no WASM container runs");
    codes
}

/// The code of before stays in the cache, and nothing runs it.
pub(super) fn modules_are_compiled_again(machine: &mut Machine, before: &BTreeSet<String>) {
    assert!(!machine.run("grep -qE 'ssse3|sse4|avx' /proc/cpuinfo").succeeded(), "the CPU is an older one");
    let now = codes_in_use(machine);
    assert!(now.is_disjoint(before), "code for another CPU runs: {now:?}, before {before:?}");
    for code in before {
        machine.run(&format!("test -s {code}")).ok();
    }
}

pub(super) fn vectors_need_no_more_than_sse2(machine: &mut Machine) {
    let (skiff, module) = (programs().join("skiff").display().to_string(), project().join("tests/it/power/simd.wat"));
    machine.run(&format!("{skiff} image import it/simd:latest {} --data-dir {DATA}", module.display())).ok();
    let kubectl = machine.kubectl();
    kubectl.ok("run simd --image=it/simd:latest --image-pull-policy=Never --restart=Never");
    kubectl.until("pod/simd", "/status/phase", "Succeeded");
}
