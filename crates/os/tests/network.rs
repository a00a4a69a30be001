//! Namespaces, netlink, ethtool and sysfs against the kernel, in namespaces of their own.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

use crate::{check, pair};
use mpps_os::ethtool;
use mpps_os::ethtool::{ntuple, rss};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link, napi, neighbour, netdev, netfilter_rule, qdisc, route};
use mpps_os::sysfs::Sysfs;
use mpps_trial::{Failed, Need, Trial, trials};

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Namespace):
            the_way_to_a_neighbour_is_known,
            a_neighbour_is_asked_for,
            a_queue_tells_its_drops,
            a_link_carries_no_more_than_its_rate,
            namespaces_differ,
            a_namespace_can_be_opened_again,
            a_panic_passes_through_a_namespace,
            a_veth_pair_has_its_queues,
            a_refusal_comes_with_the_kernels_words,
            packets_are_counted,
            features_can_be_switched,
            sysfs_is_that_of_the_namespace,
            napi_contexts_follow_the_queues,
            what_a_veth_cannot_steer_is_named,
            a_veth_tells_its_xdp_features;
        waits(Need::Namespace, Need::Program("nft", "nftables")): a_change_of_rules_is_seen;
    ]
}

/// The kernel counts changes of the rules, and a list of many can end early.
fn a_change_of_rules_is_seen() -> Result<(), Failed> {
    // The buffer of a user without rights takes that many at a time.
    const RULES: usize = 300;
    NetNamespace::new()?.run(|| -> Result<(), Failed> {
        let (before, again) = (netfilter_rule::generation()?, netfilter_rule::generation()?);
        check(before == again, "a change without one")?;
        let chain = "add table ip t; add chain ip t p { type nat hook prerouting priority -100; }";
        let rules = (1..=RULES).map(|port| format!("; add rule ip t p udp dport {port} redirect"));
        let rules: String = [chain.to_owned()].into_iter().chain(rules).collect();
        let status = Command::new("nft").arg(rules).status()?;
        check(status.success(), "nft refuses")?;
        check(netfilter_rule::generation()? != before, "no change")?;
        check(
            netfilter_rule::list(&|| true)?.len() == RULES,
            "some of them",
        )?;
        let cut = netfilter_rule::list(&|| false);
        // EINTR of include/uapi/asm-generic/errno-base.h.
        check(cut.is_err_and(|error| error.errno() == Some(4)), "all")
    })?
}

/// A namespace and its address.
type HostAt = (NetNamespace, IpAddr);

/// Both ends of a pair that is up, each with its address.
fn hosts() -> Result<(HostAt, HostAt), Failed> {
    let (near, far) = pair(1)?;
    let (here, there) = ("10.9.0.1".parse()?, "10.9.0.2".parse()?);
    for (namespace, name, own) in [(&near, "near", here), (&far, "far", there)] {
        namespace.run(|| -> mpps_os::CallResult<()> {
            let index = link::index(name)?;
            address::add(index, own, 24)?;
            link::set_up(index)
        })??;
    }
    Ok(((near, here), (far, there)))
}

fn a_neighbour_is_asked_for() -> Result<(), Failed> {
    let ((near, _), (far, there)) = hosts()?;
    let far_links = far.run(link::list)??;
    let hardware = far_links.into_iter().find(|link| link.name == "far");
    let hardware = hardware.ok_or("no link")?.address;
    near.run(|| -> Result<(), Failed> {
        let index = link::index("near")?;
        check(neighbour::find(index, there)?.is_none(), "known unasked")?;
        neighbour::ask(index, there)?;
        let known = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            neighbour::find(index, there).ok().flatten()
        });
        check(known == Some(hardware), "another address, or none")
    })?
}

fn a_queue_tells_its_drops() -> Result<(), Failed> {
    let ((near, here), (_far, there)) = hosts()?;
    near.run(|| -> Result<(), Failed> {
        let index = link::index("near")?;
        neighbour::add_permanent(index, there, &[2, 0, 0, 0, 0, 9])?;
        qdisc::set_black_hole(index)?;
        let dropped = || Ok::<_, Failed>(*qdisc::drops()?.get(&index).ok_or("no queue")?);
        let before = dropped()?;
        let sender = UdpSocket::bind((here, 0))?;
        for _ in 0..10 {
            sender.send_to(b"x", (there, 9))?;
        }
        // IPv6 may have a word to say meanwhile.
        check(dropped()? >= before + 10, "drops are missing")
    })?
}

/// Thirty times a burst goes to the link in one go; without a rate all of it leaves.
fn a_link_carries_no_more_than_its_rate() -> Result<(), Failed> {
    let (rate, burst) = (1_000_000, 10_000);
    for limited in [true, false] {
        let ((near, here), (far, there)) = hosts()?;
        let far_links = far.run(link::list)??;
        let hardware = far_links.into_iter().find(|link| link.name == "far");
        let hardware = hardware.ok_or("no link")?.address;
        near.run(|| -> Result<(), Failed> {
            let index = link::index("near")?;
            neighbour::add_permanent(index, there, &hardware)?;
            // Before that the kernel drops what is sent (linkwatch).
            while !link::is_operational(index)? {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let sysfs = Sysfs::mount()?;
            let sent = || -> Result<u64, Failed> {
                Ok(sysfs.read("class/net/near/statistics/tx_bytes")?.parse()?)
            };
            if limited {
                qdisc::limit_rate(index, rate, burst, 10 << 20)?;
            }
            let (before, began) = (sent()?, std::time::Instant::now());
            let sender = UdpSocket::bind((here, 0))?;
            for _ in 0..300 {
                sender.send_to(&[0; 1000], (there, 9))?;
            }
            let bytes = sent()? - before;
            let most = f64::from(burst) + rate as f64 * began.elapsed().as_secs_f64();
            let is_so = match limited {
                true => bytes > 0 && bytes as f64 <= most,
                false => bytes >= 300 * 1042,
            };
            check(is_so, &format!("{bytes} of at most {most}, {limited}"))
        })??;
    }
    Ok(())
}

fn namespaces_differ() -> Result<(), Failed> {
    let own = NetNamespace::current()?;
    let made = NetNamespace::new()?;
    let inside = made.run(NetNamespace::current)??;
    check(
        inside.inode() == made.inode(),
        "a thread in it does not see it",
    )?;
    check(own.inode() != made.inode(), "it is the old one")?;
    check(
        NetNamespace::current()?.inode() == own.inode(),
        "the caller was moved, too",
    )
}

fn a_namespace_can_be_opened_again() -> Result<(), Failed> {
    let made = NetNamespace::new()?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&made.as_fd());
    let again = NetNamespace::open(&format!("/proc/self/fd/{fd}"))?;
    check(again.inode() == made.inode(), "another one was opened")?;
    check(
        NetNamespace::open("/proc/self/status").is_err(),
        "a text file is no namespace",
    )
}

fn a_panic_passes_through_a_namespace() -> Result<(), Failed> {
    let made = NetNamespace::new()?;
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| made.run(|| panic!("on purpose")));
    std::panic::set_hook(hook);
    check(caught.is_err(), "the panic was lost")
}

fn a_refusal_comes_with_the_kernels_words() -> Result<(), Failed> {
    let (near, _far) = pair(1)?;
    // It has no combined channels. A veth lets its channels be set since Linux 5.13.
    if near
        .run(|| ethtool::set_channels("near", 0))?
        .is_err_and(|error| error.errno() == Some(libc::EOPNOTSUPP))
    {
        return Ok(());
    }
    let refused = near.run(|| ethtool::set_channels("near", 4096))?;
    let error = refused.err().ok_or("it was not refused")?;
    check(error.errno() == Some(libc::EINVAL), "another error")?;
    check(
        error.said == "requested channel count exceeds maximum",
        &error.to_string(),
    )?;
    let gone = near.run(|| ethtool::set_rx_ring("gone", 64))?;
    let error = gone.err().ok_or("it is not there")?;
    check(error.errno() == Some(libc::ENODEV), &error.to_string())
}

fn a_veth_pair_has_its_queues() -> Result<(), Failed> {
    let (near, far) = pair(4)?;
    for (namespace, name) in [(&near, "near"), (&far, "far")] {
        let links = namespace.run(link::list)??;
        let found = links
            .iter()
            .find(|link| link.name == name)
            .ok_or("no such link")?;
        check((found.tx_queues, found.rx_queues) == (4, 4), "other queues")?;
        check(found.address.len() == 6, "no hardware address")?;
        let index = namespace.run(|| link::index(name))??;
        check(index == found.index, "two numbers for one link")?;
        let channels = namespace.run(|| ethtool::channels(name))??;
        check(
            (channels.rx, channels.tx, channels.rx_max) == (4, 4, 4),
            "other channels",
        )?;
        check(
            namespace.run(|| ethtool::driver(name))??.name == "veth",
            "another driver",
        )?;
    }
    let gone = near.run(|| {
        let index = link::index("near")?;
        link::set_mtu(index, 9000)?;
        let mtu = link::list()?
            .into_iter()
            .find(|link| link.index == index)
            .map(|link| link.mtu);
        link::delete(index)?;
        Ok::<_, mpps_os::CallError>((mtu, link::index("near")))
    })??;
    check(gone.0 == Some(9000), "another MTU")?;
    let error = gone.1.err().ok_or("it is still there")?;
    check(
        error.to_string().contains("near"),
        "the error does not name the interface",
    )
}

fn packets_are_counted() -> Result<(), Failed> {
    let ((near, here), (far, there)) = hosts()?;
    let hardware = far.run(link::list)??;
    let hardware = hardware
        .into_iter()
        .find(|link| link.name == "far")
        .ok_or("no link")?
        .address;
    let known = near.run(|| {
        let index = link::index("near")?;
        neighbour::add_permanent(index, there, &hardware)?;
        address::list(index)
    })??;
    check(
        known
            .iter()
            .any(|known| (known.address, known.prefix_length) == (here, 24)),
        "no address",
    )?;

    let receiver = far.run(|| UdpSocket::bind((there, 9)))??;
    let sender = near.run(|| UdpSocket::bind((here, 0)))??;
    let count = || near.run(|| link::statistics(link::index("near")?));
    let before = count()??.tx_packets;
    for _ in 0..10 {
        sender.send_to(b"x", (there, 9))?;
        receiver.recv(&mut [0; 8])?;
    }
    // IPv6 may have a word to say meanwhile; less than what was sent it cannot be.
    check(count()??.tx_packets >= before + 10, "packets are missing")
}

fn features_can_be_switched() -> Result<(), Failed> {
    let (near, _far) = pair(1)?;
    for wanted in [true, false, true] {
        let features = near.run(|| {
            ethtool::set_feature("near", "rx-gro", wanted)?;
            ethtool::features("near")
        })??;
        let gro = features
            .iter()
            .find(|feature| feature.name == "rx-gro")
            .ok_or("no GRO")?;
        check(
            gro.active == wanted && gro.changeable,
            "it was not switched",
        )?;
    }
    let fixed = near.run(|| ethtool::set_feature("near", "rx-hashing", true))?;
    check(fixed.is_err(), "a veth does not hash")
}

fn sysfs_is_that_of_the_namespace() -> Result<(), Failed> {
    let (near, far) = pair(2)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let sysfs = near.run(Sysfs::mount)??;
    check(
        sysfs
            .read("class/net/near/queues/tx-1/traffic_class")
            .is_ok(),
        "no second queue",
    )?;
    check(
        sysfs.read("class/net/far/mtu").is_err(),
        "it shows the other namespace",
    )?;
    check(
        far.run(Sysfs::mount)??.read("class/net/far/mtu")? == "1500",
        "another MTU",
    )?;
    sysfs.write("class/net/near/mtu", "1400")?;
    check(
        sysfs.read("class/net/near/mtu")? == "1400",
        "it was not written",
    )?;
    let after = std::fs::read_to_string("/proc/self/mountinfo")?;
    check(mounts == after, "the mount is seen by all")
}

fn napi_contexts_follow_the_queues() -> Result<(), Failed> {
    let (near, far) = pair(3)?;
    far.run(|| link::set_up(link::index("far")?))??;
    let contexts = near.run(|| {
        let index = link::index("near")?;
        link::set_up(index)?;
        ethtool::set_feature("near", "rx-gro", true)?;
        let before = napi::list(index)?;
        Sysfs::mount()?.write("class/net/near/threaded", "1")?;
        Ok::<_, mpps_os::CallError>((before, napi::list(index)?))
    })??;
    check(
        contexts.0.len() == 3 && contexts.1.len() == 3,
        "not one for each queue",
    )?;
    check(
        contexts.0.iter().all(|context| context.thread.is_none()),
        "threads before",
    )?;
    check(
        contexts.1.iter().all(|context| context.thread.is_some()),
        "no threads after",
    )?;
    check(contexts.1.is_sorted(), "not ascending")
}

fn what_a_veth_cannot_steer_is_named() -> Result<(), Failed> {
    let (near, _far) = pair(2)?;
    let rule = ntuple::NtupleRule {
        destination: "192.0.2.1:9".parse()?,
        queue: 1,
    };
    let refusals = near.run(|| {
        [
            rss::read("near").err(),
            rss::set_indirection("near", &[0, 1]).err(),
            rss::reset_indirection("near").err(),
            ntuple::rings("near").err(),
            ntuple::table("near").err(),
            ntuple::rule("near", 3).err(),
            ntuple::insert("near", &rule, None).err(),
            ntuple::remove("near", 3).err(),
        ]
    })?;
    for refusal in refusals {
        let refusal = refusal.ok_or("a veth has neither a table nor rules")?;
        let text = refusal.to_string();
        // EOPNOTSUPP of include/uapi/asm-generic/errno.h.
        check(refusal.errno() == Some(95), &text)?;
        check(
            text.contains("ETHTOOL_") && text.contains(" near"),
            &format!("it names neither call nor interface: {text}"),
        )?;
    }
    Ok(())
}

fn a_veth_tells_its_xdp_features() -> Result<(), Failed> {
    let (near, far) = pair(1)?;
    let index = near.run(|| link::index("near"))??;
    let elsewhere = far.run(|| link::index("far"))??;
    let features = near.run(|| netdev::xdp_features(index))??;
    let features = features.ok_or("it has none")?;
    check(features.basic(), &format!("{:?}", features.names()))?;
    check(!features.zero_copy(), "a veth copies")?;
    let stranger = near.run(|| netdev::xdp_features(elsewhere + 1000))??;
    check(stranger.is_none(), "an interface of nobody has features")
}

fn the_way_to_a_neighbour_is_known() -> Result<(), Failed> {
    let (near, far) = pair(1)?;
    far.run(|| link::set_up(link::index("far")?))??;
    let [here, there, router, beyond]: [IpAddr; 4] = [
        "10.9.0.1".parse()?,
        "10.9.0.2".parse()?,
        "10.9.0.9".parse()?,
        "10.10.0.1".parse()?,
    ];
    near.run(|| -> Result<(), Failed> {
        let index = link::index("near")?;
        address::add(index, here, 24)?;
        link::set_up(link::index("lo")?)?;
        link::set_up(index)?;
        let way = route::find(there, None, None)?;
        check(
            (way.interface_index, way.gateway, way.source) == (index, None, Some(here)),
            "another way",
        )?;
        check(way.kind == route::RouteKind::Unicast, "no unicast")?;
        check(
            route::find(there, Some(here), Some(index))? == way,
            "asked in full",
        )?;
        let own = route::find(here, None, None)?;
        check(own.kind == route::RouteKind::Local, "not local")?;
        let last = route::find("10.9.0.255".parse()?, None, None)?;
        check(last.kind == route::RouteKind::Broadcast, "no broadcast")?;
        check(route::find(beyond, None, None).is_err(), "a way to nowhere")?;

        check(
            neighbour::find(index, router)?.is_none(),
            "a stranger is known",
        )?;
        neighbour::add_permanent(index, router, &[2, 0, 0, 0, 0, 9])?;
        let known = neighbour::find(index, router)?;
        check(
            known == Some(vec![2, 0, 0, 0, 0, 9]),
            "not the one that was told",
        )?;

        check(address::interface_of(here)? == Some(index), "another owner")?;
        check(address::interface_of(there)?.is_none(), "an owner here")?;
        let looped = address::interface_of("127.9.9.9".parse()?)?;
        check(looped == Some(link::index("lo")?), "not loopback")
    })?
}
