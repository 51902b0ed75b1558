//! Images that are bombs, for the unpacker (from a registry and from files) and for the compiler. Each uses limited
//! time, memory and disk, its Pod's status reports it, and other Pods start meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::run::{eventually, eventually_within, run};
use tests::{Cluster, Kubectl, cluster};

use crate::registry::{OPEN, Registry, backs_off, pod, says};

/// How much the node's process may grow while it handles bombs.
const GROWTH_KIB_MAX: u64 = 256 << 10;
/// Number of functions of a module whose compilation takes far more memory than its length suggests. A million is the
/// maximum of a module.
const FUNCTIONS: u32 = 999_000;
const NEVER_PULL: &str = "      imagePullPolicy: Never\n";

#[test]
fn images_that_are_bombs_cost_little_and_harm_nobody_else() {
    let cluster = Cluster::up_with(&["--insecure-registry", OPEN]);
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    let work = tempfile::tempdir().expect("a directory");
    // A first Pod of each kind, so that the node has loaded what these kinds need before the measurement begins.
    cluster.skiff(&["image", "import", "first:v1", &cluster::sample("hello.wasm")]).ok();
    pod(&kubectl, "first", "wasmtime", "first:v1", NEVER_PULL);
    says(&kubectl, "first", "Hello from WebAssembly!");
    let (memory, disk) = (memory_kib(cluster.pid()), bytes_below(&cluster.data_dir().join("images")));

    compile_bombs(&cluster, &kubectl, work.path());
    layers_from_files(&cluster, work.path());
    layers_from_a_registry(&cluster, &kubectl, work.path());

    let grown = memory_kib(cluster.pid()).saturating_sub(memory);
    assert!(grown < GROWTH_KIB_MAX, "the node has grown by {grown} KiB");
    eventually("the disk is given back", || match bytes_below(&cluster.data_dir().join("images")).saturating_sub(disk) {
        0..40_000_000 => Ok(()),
        more => Err(format!("{more} bytes more than before")),
    });
    let left = fs::read_dir(cluster.data_dir().join("images/tmp")).expect("lists").count();
    assert_eq!(left, 0, "half-unpacked layers");
}

/// Several bombs compile at the same time. Small modules of their namespace and of another one start meanwhile, one bomb's Pod reports its
/// error, and the Pods of the others can be deleted. Then nothing compiles any more.
fn compile_bombs(cluster: &Cluster, kubectl: &Kubectl<'_>, work: &Path) {
    kubectl.ok("create namespace neighbour");
    kubectl.until_usable("neighbour");
    for number in 0..3 {
        let (name, file) = (format!("bomb{number}"), work.join(format!("bomb{number}.wasm")));
        fs::write(&file, module(FUNCTIONS + number)).expect("written");
        cluster.skiff(&["image", "import", &format!("{name}:v1"), &file.display().to_string()]).ok();
        pod(kubectl, &name, "wasmtime", &format!("{name}:v1"), NEVER_PULL);
    }
    eventually("a bomb compiles", || {
        let found = Compiling::now(cluster);
        if !found.files.is_empty() && !found.processes.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    });
    small_modules_start(cluster, kubectl);

    // One of the bombs fails first; which one is not defined.
    let waiting = eventually_within(Duration::from_secs(300), "a bomb is told", || {
        let names = ["bomb0", "bomb1", "bomb2"];
        let waiting = names.map(|name| (name, kubectl.field(&format!("pod/{name}"), "/status/containerStatuses/0/state/waiting")));
        let found = waiting.iter().find(|(_, waiting)| waiting["reason"] == "CreateContainerError");
        found.map(|(name, waiting)| ((*name).to_owned(), waiting["message"].to_string())).ok_or_else(|| format!("{waiting:?}"))
    });
    assert!(waiting.1.contains("the WebAssembly module cannot be compiled: it takes more than "), "{}", waiting.1);
    let events = kubectl.ok(&format!("events --for pod/{}", waiting.0));
    assert!(events.contains("Error: the WebAssembly module cannot be compiled"), "{events}");
    let begun = Instant::now();
    kubectl.ok("delete pod bomb0 bomb1 bomb2 --wait --timeout=60s");
    assert!(begun.elapsed() < Duration::from_secs(30), "the Pods waited for the compiler: {:?}", begun.elapsed());
    eventually("nothing compiles", || {
        let found = Compiling::now(cluster);
        if found.files.is_empty() && found.processes.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    });
    for number in 0..3 {
        cluster.skiff(&["image", "rm", &format!("bomb{number}:v1")]).ok();
    }
}

/// Two modules that the node has not compiled: one in the namespace of the bombs, and one in another.
fn small_modules_start(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let pods = [
        ("near", "default", "job.wasm", "0", "ending with code 0"),
        ("small", "neighbour", "lookup.wasm", "kubernetes.default.svc.cluster.local", "kubernetes.default.svc.cluster.local: "),
    ];
    let begun = Instant::now();
    for (name, namespace, module, argument, _) in pods {
        let image = format!("{name}:v1");
        cluster.skiff(&["image", "import", &image, &cluster::sample(module)]).ok();
        let container = json!({"name": "main", "image": image, "imagePullPolicy": "Never", "args": [argument]});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"runtimeClassName": "wasmtime", "restartPolicy": "Never", "containers": [container]},
        });
        kubectl.apply(&pod.to_string()).ok();
    }
    for (name, namespace, _, _, words) in pods {
        kubectl.ok(&format!("wait pod {name} -n {namespace} --for=jsonpath={{.status.phase}}=Succeeded --timeout=60s"));
        let log = kubectl.ok(&format!("logs {name} -n {namespace}"));
        assert!(log.contains(words), "{log}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "the small modules waited {:?}", begun.elapsed());
}

/// What the node has of modules that are being compiled.
#[derive(Debug)]
struct Compiling {
    /// Unfinished machine code.
    files: Vec<PathBuf>,
    /// The ids of the processes that compile.
    processes: String,
}

impl Compiling {
    fn now(cluster: &Cluster) -> Self {
        let files = fs::read_dir(cluster.data_dir().join("compiled")).expect("lists").flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "new")).collect();
        let processes = run(Command::new("pgrep").args(["-P", &cluster.pid().to_string(), "-f", "internal compile"]), None).stdout;
        Self { files, processes }
    }
}

/// `skiff image import` of archives that are bombs ends with an error message.
fn layers_from_files(cluster: &Cluster, work: &Path) {
    for (name, layer, wanted) in bombs(work) {
        let archive = docker_save(work, &layer);
        let begun = Instant::now();
        let complaint = cluster.skiff(&["image", "import", "x:v1", &archive.display().to_string()]).fails();
        assert!(complaint.contains(wanted), "{name}: {complaint}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{name}: {:?}", begun.elapsed());
    }
}

fn layers_from_a_registry(cluster: &Cluster, kubectl: &Kubectl<'_>, work: &Path) {
    let registry = Registry::start(&cluster.net, OPEN, None);
    let bombs = bombs(work);
    for (name, layer, _) in &bombs {
        let config = config(&"0".repeat(64));
        let config = ("application/vnd.oci.image.config.v1+json", &config);
        registry.push(&cluster.net, name, config, ("application/vnd.oci.image.layer.v1.tar+gzip", layer));
        pod(kubectl, name, "runc", &format!("{OPEN}/{name}:v1"), "");
    }
    pod(kubectl, "beside", "wasmtime", "first:v1", NEVER_PULL);
    says(kubectl, "beside", "Hello from WebAssembly!");
    for (name, _, wanted) in &bombs {
        backs_off(kubectl, name, wanted);
    }
    for (name, ..) in &bombs {
        kubectl.ok(&format!("delete pod {name} --wait --timeout=60s"));
    }
}

/// Compressed layers, each with the expected message.
fn bombs(work: &Path) -> Vec<(&'static str, PathBuf, &'static str)> {
    let zeros = vec![0; 64 << 20];
    let trailer = [0; 1_024];
    let made = |name: &'static str, parts: &[&[u8]], wanted: &'static str| {
        let file = work.join(format!("{name}.tar"));
        fs::write(&file, parts.concat()).expect("written");
        run(Command::new("gzip").args(["-1", "-f", "-k"]).arg(&file), None).ok();
        (name, work.join(format!("{name}.tar.gz")), wanted)
    };
    vec![
        made("pax", &[&header(b'x', "p", 1 << 40), &zeros], "an extended header of 1024 GiB; at most 1 MiB are read"),
        made("long-name", &[&header(b'L', "l", 1 << 33), &zeros], "a name of 8 GiB; at most 8192 bytes are read"),
        made("huge", &[&header(b'0', "f", 1 << 40), &zeros], "unpacked, which is all that it may have here"),
        made("upwards", &[&header(b'0', "../../etc/cron.d/x", 0), &trailer], "leaves the archive"),
    ]
}

/// A header of GNU tar; its length may be false.
fn header(kind: u8, name: &str, len: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    // Base-256 encoding, as for lengths of 8 GiB and more.
    put(124, &[0x80, 0, 0, 0]);
    put(128, &len.to_be_bytes());
    put(136, b"00000000001\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar  \0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn config(diff_id: &str) -> serde_json::Value {
    let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    json!({"architecture": architecture, "os": "linux", "config": {"Entrypoint": ["/x"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff_id}")]}})
}

/// An archive with one layer in the format of `docker save`.
fn docker_save(work: &Path, layer: &Path) -> PathBuf {
    let dir = work.join("saved");
    fs::create_dir_all(&dir).expect("made");
    fs::copy(layer, dir.join("layer.tar")).expect("copied");
    fs::write(dir.join("config.json"), config(&"0".repeat(64)).to_string()).expect("written");
    fs::write(dir.join("manifest.json"), json!([{"Config": "config.json", "Layers": ["layer.tar"]}]).to_string()).expect("written");
    let archive = work.join("saved.tar");
    run(Command::new("tar").arg("-C").arg(&dir).arg("-cf").arg(&archive).args(["manifest.json", "config.json", "layer.tar"]), None).ok();
    archive
}

/// A module with that many empty functions.
fn module(functions: u32) -> Vec<u8> {
    let section = |id: u8, content: &[u8]| [&[id][..], &leb(content.len()), content].concat();
    let count = leb(functions as usize);
    let kinds = [count.clone(), vec![0; functions as usize]].concat();
    let bodies = [count, [2, 0, 0x0b].repeat(functions as usize)].concat();
    let parts = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[1, 0x60, 0, 0]),
        section(3, &kinds),
        section(7, b"\x01\x06_start\0\0"),
        section(10, &bodies),
    ];
    parts.concat()
}

/// A number in WebAssembly's LEB128 encoding.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return bytes;
        }
    }
}

/// The peak memory of a process.
fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a high-water mark");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.metadata().map_or(0, |meta| if meta.is_dir() { bytes_below(&entry.path()) } else { meta.len() })).sum()
}
