//! `skiff-fuzz [TARGET|all] [SECONDS] [SEED]`: tries inputs for that long. An input that breaks a promise is reported
//! and written to `target/fuzz/TARGET/`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tests_fuzz::{Failure, TARGETS, Target, corpus, drive};

const SECONDS: u64 = 60;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("skiff-fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all promises held.
fn run(args: &[String]) -> Result<bool, Box<dyn Error>> {
    let wanted = args.first().map_or("all", String::as_str);
    let seconds = args.get(1).map(|text| text.parse()).transpose()?.unwrap_or(SECONDS);
    let seed = args.get(2).map(|text| text.parse()).transpose()?.unwrap_or(1);
    let targets: Vec<&Target> = TARGETS.iter().filter(|target| wanted == "all" || target.name == wanted).collect();
    if targets.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!("no target {wanted:?}; there are {}", names.join(", ")).into());
    }
    // The panic's own message is not printed: the report has it, with the input.
    std::panic::set_hook(Box::new(|_| {}));
    let mut all_passed = true;
    for target in targets {
        let end = Instant::now() + Duration::from_secs(seconds);
        match drive(target, &corpus(target)?, seed, |_| Instant::now() < end) {
            Ok(tried) => println!("{}: {tried} inputs, seed {seed}: nothing found", target.name),
            Err(failure) => {
                let path = keep(target, &failure)?;
                println!("{}: {}\n  input: {}", target.name, failure.why, path.display());
                all_passed = false;
            }
        }
    }
    Ok(all_passed)
}

fn keep(target: &Target, failure: &Failure) -> std::io::Result<PathBuf> {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).join("target/fuzz").join(target.name);
    std::fs::create_dir_all(&folder)?;
    let name = BuildHasherDefault::<DefaultHasher>::default().hash_one(&failure.input);
    let path = folder.join(format!("{name:016x}"));
    std::fs::write(&path, &failure.input)?;
    Ok(path)
}
