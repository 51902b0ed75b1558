use std::path::Path;
use std::time::Duration;

use runtimes_battery::{Abilities, Harness, Program, plain_spec};

use super::*;

struct Fake {
    world: Arc<World>,
}

impl Fake {
    fn new() -> Self {
        let ms = Duration::from_millis;
        let script = Script::default()
            .containers(move |spec| match spec.args[0].split_once(' ') {
                Some(("exit", code)) => Behaviour::Exit { after: ms(3), code: code.parse().unwrap() },
                Some(("hog", _)) => Behaviour::OomKilled { after: ms(3) },
                Some(("broken", why)) => Behaviour::FailStart(why.into()),
                _ => Behaviour::Run,
            })
            .execs(|_| Ok(ExecReply { code: 7, ..ExecReply::default() }));
        Self { world: World::new(script) }
    }
}

impl Harness for Fake {
    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(FakeRuntime::new("fake", ContentKind::Linux, self.world.clone()))
    }

    fn reopened(&self) -> Arc<dyn Runtime> {
        self.runtime()
    }

    fn scratch(&self) -> &Path {
        Path::new("/nonexistent")
    }

    fn cgroup(&self, id: &str) -> String {
        format!("fake/{id}")
    }

    fn program(&self, program: Program) -> (Content, Vec<String>) {
        let does = match program {
            Program::ExitWith(code) => format!("exit {code}"),
            Program::Hello | Program::Echo | Program::LongLine => "exit 0".into(),
            Program::Hog => "hog me".into(),
            Program::Broken => "broken exec: \"nothing\": executable file not found".into(),
            Program::Sleep | Program::Spin | Program::Ticks => "run".into(),
        };
        (Content::Linux { rootfs: "/".into() }, vec![does])
    }

    fn abilities(&self) -> Abilities {
        Abilities { real: false, terminated_code: 143, hog_is_killed: true }
    }
}

runtimes_battery::battery!(Fake::new());

#[tokio::test(start_paused = true)]
async fn time_is_tokios_and_two_runs_are_the_same() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let script = Script::default().containers(|_| Behaviour::Exit { after: Duration::from_secs(3600), code: 5 });
        let runtime = FakeRuntime::new("fake", ContentKind::Linux, World::new(script));
        let spec = plain_spec("a");
        runtime.create(&spec).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        runtime.start(&spec.id).await.unwrap();
        let exit = runtime.wait(&spec.id).await.unwrap();
        runs.push((exit, runtime.list().await.unwrap()));
    }
    assert_eq!(runs[0], runs[1]);
    let status = &runs[0].1[0];
    assert_eq!(status.started_at_ms.unwrap() - status.created_at_ms, 1000);
    assert_eq!(runs[0].0.finished_at_ms - status.started_at_ms.unwrap(), 3_600_000);
}

#[tokio::test(start_paused = true)]
async fn faults_hit_the_next_calls_only() {
    let world = World::new(Script::default().containers(|_| Behaviour::IgnoreTerm));
    let runtime = FakeRuntime::new("fake", ContentKind::Linux, world.clone());
    let spec = plain_spec("a");
    world.inject(Operation::Create, [Fault::Error(RuntimeError::Missing("disk".into())), Fault::Delay(Duration::from_secs(9))]);
    assert!(runtime.create(&spec).await.is_err());
    assert!(runtime.list().await.unwrap().is_empty());
    let before = tokio::time::Instant::now();
    runtime.create(&spec).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(9));
    runtime.start(&spec.id).await.unwrap();
    runtime.signal(&spec.id, 15).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(100), runtime.wait(&spec.id)).await.is_err());
    world.kill_all();
    assert_eq!(runtime.wait(&spec.id).await.unwrap().code, 137);
    assert_eq!(world.calls()[..3], [Operation::Create, Operation::List, Operation::Create]);
}

#[tokio::test]
async fn content_of_another_kind_is_rejected() {
    let runtime = FakeRuntime::new("fake", ContentKind::Wasm, World::new(Script::default()));
    assert!(matches!(runtime.create(&plain_spec("a")).await, Err(RuntimeError::BadContent(_))));
}
