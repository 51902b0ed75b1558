//! Linearizability of the store: several clients write to a few objects while servers and etcd members are killed. All
//! answers must fit into one order, and watches must report all changes.

use std::path::PathBuf;

use tests::recorder::Recorder;
use tests::{Cluster, Etcd, Net};

use crate::etcd::servers;

const KILLS: usize = 4;
/// Number of operations between two kills.
const OPERATIONS: usize = 150;

#[test]
fn a_killed_server_on_its_own_database_is_linearizable() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    let recorder = Recorder::start(&cluster.net, vec![kubeconfig(&cluster)], 6);
    for _ in 0..KILLS {
        recorder.until_answered(OPERATIONS);
        cluster.kill();
        cluster.start();
    }
    recorder.until_answered(OPERATIONS);
    println!("{}", recorder.judge());
}

#[test]
fn servers_that_share_an_etcd_are_linearizable_while_some_are_killed() {
    let net = Net::alone();
    let mut etcd = Etcd::cluster(&net, 3);
    let mut servers = servers(&net, &Etcd::urls(&etcd), 3);
    let recorder = Recorder::start(&net, servers.iter().map(kubeconfig).collect(), 6);
    for kill in 0..KILLS {
        recorder.until_answered(OPERATIONS);
        let (server, member) = (&mut servers[kill % 3], &mut etcd[(kill + 1) % 3]);
        match kill % 2 {
            0 => server.kill(),
            _ => member.kill(),
        }
        recorder.until_answered(OPERATIONS);
        match kill % 2 {
            0 => drop(server.start()),
            _ => member.start(),
        }
    }
    recorder.until_answered(OPERATIONS);
    println!("{}", recorder.judge());
}

fn kubeconfig(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("admin.kubeconfig")
}
