use runtimes_battery::plain_spec;
use runtimes_contract::{Security, UserNamespace};

use super::*;

/// What the kernel does with the filter and the call (`ioctl(3, command)`, or any call with that second argument).
fn answer(architecture: u32, number: u32, argument: u64) -> u32 {
    let mut data = [0; 64];
    data[..4].copy_from_slice(&number.to_le_bytes());
    data[4..8].copy_from_slice(&architecture.to_le_bytes());
    data[24..32].copy_from_slice(&argument.to_le_bytes());
    let (filter, mut next, mut loaded) = (filter(), 0, 0);
    loop {
        let libc::sock_filter { code, jt, jf, k } = filter[next];
        next += 1;
        match code {
            LOAD => loaded = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
            JUMP_IF_EQUAL => next += usize::from(if loaded == k { jt } else { jf }),
            END => return k,
            other => panic!("{other}"),
        }
    }
}

/// The `ioctl` calls of each ABI, whether a kernel has them or not.
const IOCTLS: [(u32, u32); 8] = [
    (0xc000_003e, 16),
    (0xc000_003e, 514),
    (0xc000_003e, 0x4000_0010),
    (0xc000_003e, 0x4000_0202),
    (0x4000_0003, 54),
    (0xc000_00b7, 29),
    (0x4000_0028, 54),
    (0xc000_00f3, 29),
];

/// The `quotactl` calls of each ABI.
const QUOTACTL: [(u32, u32); 5] = [(0xc000_003e, 179), (0x4000_0003, 131), (0xc000_00b7, 60), (0x4000_0028, 131), (0xc000_00f3, 60)];

#[test]
fn commands_that_change_projects_are_forbidden_and_their_neighbours_allowed() {
    for (architecture, number) in IOCTLS {
        for command in [0x401c_5820_u64, 0x4008_6602, 0x4004_6602] {
            for upper_half in [0, 1, 0x8000_0000, 0xffff_ffff_u64] {
                assert_eq!(answer(architecture, number, command | upper_half << 32), EPERM, "{architecture:#x} {number} {command:#x}");
            }
            let neighbours = (0..32).map(|bit| command ^ (1 << bit)).chain([command - 1, command + 1]);
            for other in neighbours.chain([0, 0x8008_6601, 0x801c_581f, 0x5401, 0xffff_ffff]) {
                let allowed = answer(architecture, number, other);
                assert_eq!(allowed, libc::SECCOMP_RET_ALLOW, "{architecture:#x} {number} {other:#x}");
            }
        }
    }
}

#[test]
fn of_the_other_calls_file_setattr_alone_is_forbidden() {
    for (architecture, _) in IOCTLS {
        for number in (0..1_000).filter(|&number| !IOCTLS.contains(&(architecture, number))) {
            let is_quotactl = QUOTACTL.contains(&(architecture, number));
            let wanted = if is_quotactl || [443, 469].contains(&number) { EPERM } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(architecture, number, 0x401c_5820), wanted, "{architecture:#x} {number}");
        }
    }
    assert_eq!(answer(0xc000_003e, 0x4000_01d5, 0), EPERM, "that of x32");
    assert_eq!(answer(0x8000_0016, 0, 0), EPERM, "an ABI that is not listed: s390x");
}

#[test]
fn containers_that_keep_projects_need_the_filter() {
    let of = |keeps_projects: bool, privileged: bool, user: Option<UserNamespace>| {
        let mut spec = plain_spec("web");
        spec.security = Security { keeps_projects, privileged, ..Security::default() };
        spec.sandbox.user = user;
        (needs_filter(&spec), flag(&spec))
    };
    let user = UserNamespace { path: "/run/user/a".into(), first_id: 131_072 };
    assert_eq!(of(true, false, None), (true, Some("project-quota".into())));
    assert_eq!(of(false, false, None), (false, None));
    assert_eq!(of(true, true, None), (false, None));
    assert_eq!(of(true, false, Some(user)), (false, None));
}
