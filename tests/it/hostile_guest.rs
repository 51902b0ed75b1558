//! What hostile guests reach: native code that has taken over a shim after the shim gave up its rights, modules that
//! try to break the engine, and other users of the machine who search for the data of guests. Each case is an attack.

mod engine;
mod images;
mod linux;
mod native;
mod programs;
mod user;

use tests::{Cluster, Net};

#[test]
fn a_hostile_guest_costs_its_own_limits_and_reaches_its_own_pod() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    cluster.load_samples();
    {
        let kubectl = cluster.kubectl();
        kubectl.until_usable("default");
        native::start(&kubectl);
        engine::start(&cluster);
        programs::start(&kubectl);
        native::reaches_nothing_but_its_own_pod(&kubectl);
        engine::have_cost_only_themselves(&kubectl);
        programs::of_the_node_are_not_run(&kubectl);
        native::still_serves(&kubectl);
    }
    user::finds_nothing(&mut cluster);
}
