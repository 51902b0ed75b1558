//! The addresses of the machine's interfaces. The interfaces are not listed for this: with many Pods that takes the kernel long, and holds
//! up everybody who changes one.

use std::io;
use std::net::Ipv4Addr;

use crate::netlink::Socket;

/// The IPv4 addresses of the interfaces of the calling thread's network namespace. Blocks.
pub fn addresses() -> io::Result<Vec<Ipv4Addr>> {
    let addresses = Socket::open().and_then(|mut socket| socket.addresses()).map_err(io::Error::other)?;
    Ok(addresses.into_iter().map(|address| address.ip).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn they_are_those_of_all_interfaces() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let read = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            for args in ["link set lo up", "addr add 192.0.2.1/32 dev lo", "addr add 192.0.2.2/24 dev lo"] {
                assert!(Command::new("ip").args(args.split(' ')).status().expect("ip").success(), "ip {args}");
            }
            let interfaces = nix::ifaddrs::getifaddrs().expect("the C library's answer");
            let wanted: BTreeSet<Ipv4Addr> = interfaces.filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip())).collect();
            (addresses().expect("read").into_iter().collect::<BTreeSet<_>>(), wanted)
        });
        let (addresses, wanted) = read.join().expect("an answer");
        assert_eq!(addresses, wanted);
        assert!(addresses.contains(&Ipv4Addr::new(192, 0, 2, 2)), "the second address of an interface: {addresses:?}");
    }
}
