//! The demo: a one-machine cluster with a WASM Deployment, a WASM command and a Linux Pod, and their answers to each
//! other.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{build, needs, samples, sh};

/// The directory of the demo's cluster.
const DATA_DIR: &str = "/var/lib/skiff-demo";
/// How long the cluster may take until it is ready.
const UP_LIMIT: Duration = Duration::from_secs(30);
/// How long the quickstart may take until it runs.
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Images of the quickstart and their files.
const IMAGES: &[(&str, &str)] =
    &[("samples/web:latest", "web.wasm"), ("samples/lookup:latest", "lookup.wasm"), ("samples/tools:latest", "tools.tar")];

/// Builds, starts and deploys the demo, and shows it.
pub fn up(release: bool) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::SAMPLES])?;
    let programs = if release { build::release()? } else { build::unoptimized()? };
    let guests = samples::build()?;
    let cluster = Cluster { skiff: programs.join("skiff") };
    cluster.start()?;
    sh::say("loading the sample images");
    for (name, file) in IMAGES {
        sh::run(cluster.skiff_command(&["image", "import"]).arg(name).arg(guests.join(file)).stdout(Stdio::null()))?;
    }
    sh::say("applying samples/quickstart");
    sh::run(&mut cluster.kubectl(&["apply", "-f", "samples/quickstart"]))?;
    cluster.wait()?;
    cluster.show()
}

/// Stops the cluster and removes every trace of it.
pub fn down() -> Result<()> {
    needs::root()?;
    if !Path::new(DATA_DIR).exists() {
        sh::say("there is no demo to remove");
        return Ok(());
    }
    let cluster = Cluster { skiff: fs::read_link(program_path()).context("which program the demo is of")? };
    cluster.stop()?;
    sh::run(&mut cluster.skiff_command(&["down"]))?;
    fs::remove_dir_all(DATA_DIR).with_context(|| format!("removing {DATA_DIR}"))?;
    sh::say("the demo is gone");
    Ok(())
}

struct Cluster {
    skiff: PathBuf,
}

impl Cluster {
    /// Starts `skiff up` in the background, unless it runs already, and waits until it is ready.
    fn start(&self) -> Result<()> {
        fs::create_dir_all(DATA_DIR).with_context(|| format!("creating {DATA_DIR}"))?;
        if self.pid().is_some() {
            sh::say("the demo's cluster runs already");
        } else {
            sh::say(&format!("starting a cluster in {DATA_DIR}"));
            // The link to the program lets `down` work without a build.
            let _earlier = fs::remove_file(program_path());
            std::os::unix::fs::symlink(&self.skiff, program_path()).context("linking the program")?;
            let log = File::create(log_path()).context("creating the log")?;
            let mut skiff = self.skiff_command(&["up"]);
            // Its own process group: skiff keeps running after a Ctrl-C and when the terminal closes.
            skiff.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
            let child = skiff.spawn().context("starting skiff")?;
            fs::write(pid_path(), child.id().to_string()).context("writing the pid file")?;
        }
        let ready = || {
            if self.pid().is_none() {
                return Some(Err(()));
            }
            sh::output(&mut self.kubectl(&["get", "--raw", "/readyz"])).ok().map(|_| Ok(()))
        };
        match sh::wait_for("the start of the cluster", UP_LIMIT, ready)? {
            Ok(()) => Ok(()),
            Err(()) => bail!("skiff ended:\n{}", fs::read_to_string(log_path()).unwrap_or_default().trim()),
        }
    }

    fn stop(&self) -> Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        sh::say("stopping the cluster");
        sh::run(Command::new("kill").arg(pid.to_string()))?;
        sh::wait_for("the end of the cluster", UP_LIMIT, || self.pid().is_none().then_some(()))
    }

    /// The process id from the pid file, if that process is alive and is skiff.
    fn pid(&self) -> Option<u32> {
        let pid: u32 = fs::read_to_string(pid_path()).ok()?.trim().parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        (stat.contains("(skiff)") && !stat.contains(") Z ")).then_some(pid)
    }

    fn skiff_command(&self, args: &[&str]) -> Command {
        let mut command = sh::command(&self.skiff.to_string_lossy(), args);
        command.args(["--data-dir", DATA_DIR]);
        command
    }

    fn kubectl(&self, args: &[&str]) -> Command {
        let mut command = sh::command("kubectl", ["--kubeconfig", &kubeconfig()]);
        // The demo does not use the user's cache, which may have another cluster's kinds for this address.
        command.args(args).env("KUBECACHEDIR", format!("{DATA_DIR}/kubectl-cache"));
        command
    }

    /// Waits until web and tools are ready and lookup has ended, and prints the progress.
    fn wait(&self) -> Result<()> {
        sh::say("waiting for the Pods");
        let mut printed = String::new();
        let waited = sh::wait_for("the start of the Pods", RUN_LIMIT, || {
            let pods = self.pods().ok()?;
            let line = pods
                .iter()
                .map(|(name, phase, ready)| format!("{name} {}", if *ready { "ready" } else { phase }))
                .collect::<Vec<_>>()
                .join(", ");
            if line != printed {
                eprintln!("    {line}");
                printed.clone_from(&line);
            }
            let done = |(name, phase, ready): &(String, String, bool)| if name == "lookup" { phase == "Succeeded" } else { *ready };
            (pods.len() == 4 && pods.iter().all(done)).then_some(())
        });
        if waited.is_err() {
            // Show the likely causes: Pods without a node, images that cannot be pulled, a node under pressure.
            for args in [&["events", "--types=Warning"][..], &["describe", "nodes"]] {
                sh::run(&mut self.kubectl(args))?;
            }
        }
        waited
    }

    fn pods(&self) -> Result<Vec<(String, String, bool)>> {
        let list: Value = serde_json::from_str(&sh::output(&mut self.kubectl(&["get", "pods", "-o", "json"]))?)?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let pods = list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Ok(pods
            .iter()
            .map(|pod| {
                let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let ready = conditions.iter().any(|c| text(c.get("type")) == "Ready" && text(c.get("status")) == "True");
                (text(pod.pointer("/metadata/name")), text(pod.pointer("/status/phase")), ready)
            })
            .collect())
    }

    fn show(&self) -> Result<()> {
        let columns = "NAME:.metadata.name,RUNTIMECLASS:.spec.runtimeClassName,STATUS:.status.phase,NODE:.spec.nodeName,IP:.status.podIP";
        println!("\nThe Pods:");
        sh::run(&mut self.kubectl(&["get", "pods", "-o", &format!("custom-columns={columns}")]))?;
        println!("\nAn HTTP request from the Linux Pod to the WASM Deployment by its Service's name:");
        println!("$ wget -qO- http://web/quickstart");
        sh::run(&mut self.kubectl(&["exec", "tools", "--", "wget", "-qO-", "http://web/quickstart"]))?;
        println!("\nThe name web.default.svc.cluster.local as the Linux Pod sees it:");
        sh::run(&mut self.kubectl(&["exec", "tools", "--", "nslookup", "web.default.svc.cluster.local"]))?;
        println!("\n… and as the WASM Pod saw it:");
        sh::run(&mut self.kubectl(&["logs", "lookup"]))?;
        println!("\nGo on with:\n  kubectl --kubeconfig {} get pods\nand end with:\n  cargo xtask demo --down", kubeconfig());
        Ok(())
    }
}

fn kubeconfig() -> String {
    format!("{DATA_DIR}/admin.kubeconfig")
}

/// The link to the skiff program that the demo runs.
fn program_path() -> PathBuf {
    Path::new(DATA_DIR).join("skiff")
}

fn pid_path() -> PathBuf {
    Path::new(DATA_DIR).join("demo.pid")
}

fn log_path() -> PathBuf {
    Path::new(DATA_DIR).join("skiff.log")
}
