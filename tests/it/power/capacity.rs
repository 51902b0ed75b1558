//! The capacity of volumes on file systems with project quotas, which the kernel of the other stories does not have: what the guest of a
//! Pod writes ends at its claim's size, it cannot leave its project, and a claim that grows has more room at once.

use serde_json::Value;
use tests::machine::{DATA, Machine, on_machines};
use tests::{Ran, eventually};

/// The file systems, each with the errors that programs get: of WASI, and in words. wasmtime makes the second one's error an error of I/O.
const FILE_SYSTEMS: [(&str, u32, &str); 2] =
    [("mkfs.xfs -q", 51, "No space left on device"), ("mkfs.ext4 -q -O quota,project -E quotatype=prjquota", 29, "Disk quota exceeded")];
const MIB: u64 = 1 << 20;
const OBJECTS: &str = include_str!("capacity.yaml");

#[test]
fn a_volume_has_the_size_of_its_claim() {
    on_machines(4, || {
        let mut machine = Machine::new(2_000);
        machine.boot();
        for (index, (make, errno, words)) in FILE_SYSTEMS.into_iter().enumerate() {
            let mount = format!(
                "mkdir -p {DATA}/volumes && truncate -s 400M {DATA}/disk && {make} {DATA}/disk && mount -o loop,prjquota {DATA}/disk {DATA}/volumes"
            );
            machine.run(&mount).ok();
            if index == 0 {
                machine.start_skiff("");
                machine.load_samples(&["tools.tar"]);
                let fill = tests::cluster::project().join("tests/it/volumes/fill.wat").display().to_string();
                let skiff = tests::cluster::programs().join("skiff").display().to_string();
                machine.run(&format!("{skiff} image import it/fill:latest {fill} --data-dir {DATA}")).ok();
                let capacity = r"get nodes -o jsonpath={.items[0].metadata.annotations.skiff\.internal/local-path-capacity}";
                assert_eq!(machine.kubectl().ok(capacity), "enforced");
            }
            machine.kubectl().apply(OBJECTS).ok();
            machine.kubectl().until_ready("tools");
            assert_eq!(projects(&mut machine).lines().count(), 2, "one for each volume");
            guests_write_until_the_volume_is_full(&mut machine, errno, words);
            containers_stay_in_their_project(&mut machine);
            a_claim_grows(&mut machine, words);
            files_that_were_there_before_count(&mut machine);
            machine.kubectl().ok("delete pod fill tools --timeout=240s");
            machine.kubectl().ok("delete pvc data tiny --timeout=240s");
            eventually("the volumes are gone", || {
                let left = machine.run(&format!("ls -A {DATA}/volumes | grep -v lost+found")).stdout + &projects(&mut machine);
                if left.is_empty() { Ok(()) } else { Err(left) }
            });
            machine.run(&format!("umount {DATA}/volumes && rm {DATA}/disk")).ok();
        }
    });
}

/// The kernel's entries for projects with limits.
fn projects(machine: &mut Machine) -> String {
    machine.run(&format!("xfs_quota -x -f -c 'report -p -n -b -N' {DATA}/volumes | awk '$4 > 0'")).stdout
}

fn in_tools(machine: &Machine, script: &str) -> Ran {
    machine.kubectl().run(&["exec", "tools", "--", "sh", "-c", script])
}

/// The bytes that `df` reports, all of them and those in use.
fn df(machine: &Machine, path: &str) -> (u64, u64) {
    let printed = in_tools(machine, &format!("df -k {path} | tail -n 1")).ok();
    let mut fields = printed.split_whitespace().skip(1).map(|field| field.parse::<u64>().expect("a number") << 10);
    (fields.next().expect("a size"), fields.next().expect("a use"))
}

fn guests_write_until_the_volume_is_full(machine: &mut Machine, errno: u32, words: &str) {
    machine.kubectl().until("pod/fill", "/status/phase", "Failed");
    let code = machine.kubectl().field("pod/fill", "/status/containerStatuses/0/state/terminated/exitCode");
    assert_eq!(code, errno, "the error of WASI");
    assert_eq!(df(machine, "/data").0, 16 * MIB);
    let refused = in_tools(machine, "dd if=/dev/zero of=/data/more bs=64k count=1");
    assert!(refused.stderr.contains(words), "{refused}");
    // The other volume of the same file system has room, for bytes and for 256 files, its directory included.
    in_tools(machine, "dd if=/dev/zero of=/tiny/file bs=64k count=8").ok();
    let refused = in_tools(machine, "for i in $(seq 300); do : > /tiny/$i || exit 7; done");
    assert!(refused.stderr.contains(words), "{refused}");
    assert_eq!(in_tools(machine, "ls -A /tiny | wc -l").ok().trim(), "255");
    let node = machine.kubectl().ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let capacity = eventually("the statistics have the volume", || {
        let summary = machine.kubectl().ok(&format!("get --raw /api/v1/nodes/{node}/proxy/stats/summary"));
        let summary: Value = serde_json::from_str(&summary).expect("JSON");
        let volumes = summary["pods"].as_array().into_iter().flatten().flat_map(|pod| pod["volume"].as_array().into_iter().flatten());
        let data = volumes.into_iter().find(|volume| volume["pvcRef"]["name"] == "data");
        data.map(|volume| volume["capacityBytes"].clone()).ok_or_else(|| summary.to_string())
    });
    assert_eq!(capacity, 16 * MIB);
}

/// The owner of a file may give it to another project, unless the kernel's calls for that are denied.
fn containers_stay_in_their_project(machine: &mut Machine) {
    let libraries = "/host/usr/lib/x86_64-linux-gnu";
    let run = |program: &str| {
        in_tools(machine, &format!("{libraries}/ld-linux-x86-64.so.2 --library-path {libraries} /host/usr/bin/{program} /data/guest"))
    };
    let listed = run("lsattr -p").ok();
    for program in ["chattr -p 0", "chattr +d"] {
        let refused = run(program);
        assert!(!refused.succeeded() && refused.stderr.contains("Operation not permitted"), "{refused}");
    }
    assert_eq!(run("lsattr -p").ok(), listed);
}

fn a_claim_grows(machine: &mut Machine, words: &str) {
    let patch = r#"{"spec":{"resources":{"requests":{"storage":"24Mi"}}}}"#;
    machine.kubectl().run(&["patch", "pvc", "data", "-p", patch]).ok();
    machine.kubectl().until("pvc/data", "/status/capacity/storage", "24Mi");
    // What the status says is enforced: there is no wait from here on.
    assert_eq!(df(machine, "/data").0, 24 * MIB);
    in_tools(machine, "dd if=/dev/zero of=/data/more bs=64k count=100").ok();
    let refused = in_tools(machine, "dd if=/dev/zero of=/data/most bs=64k count=100");
    assert!(refused.stderr.contains(words), "{refused}");
}

/// A directory that was restored from a backup is in no project. The next Pod finds it counted and limited.
fn files_that_were_there_before_count(machine: &mut Machine) {
    machine.kubectl().ok("delete pod tools --timeout=240s");
    let volume = machine.kubectl().field("pvc/data", "/spec/volumeName").as_str().expect("a name").to_owned();
    let dir = format!("{DATA}/volumes/{volume}");
    machine.run(&format!("rm {dir}/more {dir}/most && mkdir -p {dir}/a/b && echo deep > {dir}/a/b/file")).ok();
    machine
        .run(&format!("chattr -R -p 0 {dir} && find {dir} -type d -exec chattr -P {{}} + && mkfifo {dir}/pipe && ln -s /etc {dir}/link"))
        .ok();
    assert!(machine.run(&format!("lsattr -p -d {dir}")).ok().trim_start().starts_with("0 "));
    machine.kubectl().apply(OBJECTS.rsplit("---").next().expect("the Pod tools")).ok();
    machine.kubectl().until_ready("tools");
    let (size, used) = df(machine, "/data");
    assert!(size == 24 * MIB && (15 * MIB..17 * MIB).contains(&used), "{size} {used}");
    let listed = machine.run(&format!("lsattr -p {dir}/a/b/file; lsattr -p -d {dir}/a/b {dir}")).ok();
    let project = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let of_all: Vec<_> = listed.lines().map(project).collect();
    assert!(of_all.len() == 3 && of_all.iter().all(|one| *one == of_all[0]), "{listed}");
    assert_ne!(of_all[0].as_deref(), Some("0"), "{listed}");
}
