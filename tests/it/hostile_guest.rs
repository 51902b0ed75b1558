//! What a hostile guest gets: native code that has taken a shim over after the shim gave up its rights, modules
//! that try to break the engine, and the machine's other users who look for what guests were given. Each case is what
//! such a one would try.

mod engine;
mod images;
mod linux;
mod native;
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
        native::reaches_nothing_but_its_own_pod(&kubectl);
        engine::have_cost_only_themselves(&kubectl);
        native::still_serves(&kubectl);
    }
    user::finds_nothing(&mut cluster);
}
