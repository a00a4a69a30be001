//! Drops of sockets without a full buffer, and their causes.

use super::*;
use crate::facts::IngressProgram;

/// A socket that was refused 1500 datagrams, and one with a full buffer that lost 1244.
fn two_sockets(more: &str) -> Scene {
    let mut scene = Scene::grown(&format!(
        "Ip.InReceives 2744, Ip.InDelivers 2744, Udp.InErrors 2744, Udp.RcvbufErrors 1244, {more}"
    ));
    let at = |refused, full, queued_bytes| {
        let other = UdpEntry {
            queued_bytes,
            ..socket("10.0.0.1:54", 2, full)
        };
        vec![socket("10.0.0.1:53", 1, refused), other]
    };
    scene.before.sockets = at(0, 0, 0);
    scene.after.sockets = at(1500, 1244, 212_992);
    let mut scene = scene.both(|facts| has(facts, 1, owner(0, 0)));
    reader(&mut scene.after).read_ns = SECOND;
    scene
}

/// The findings that are no remarks.
fn looked(scene: &Scene) -> Vec<Finding> {
    let found = scene.found().into_iter();
    found.filter(|one| !one.is_remark).collect()
}

#[test]
fn a_refused_socket_has_no_full_buffer() {
    let scene = two_sockets("");
    let all = looked(&scene);
    finds(&all, "udp_errors 1500, socket_buffer 1244");
    tells(&all, "udp_errors possible: their buffers were not full");
    tells(&all[1..], "socket_buffer possible: 10.0.0.1:54");
    let mut scene = scene.port(53);
    finds(&looked(&scene), "udp_errors 1500");
    // The reasons of the port show it, even if the other one's buffer is empty again.
    let other = &mut scene.after.sockets[1];
    (other.queued_bytes, other.drops) = (0, 0);
    finds(
        &looked(&scene.drops("SOCKET_FILTER 1500")),
        "drop_reason 1500",
    );
}

#[test]
fn a_full_buffer_is_sure_by_its_own_counter_only() {
    for (full, is_sure) in [(1244, true), (1230, true), (1100, false), (0, false)] {
        let counters = format!("Udp.RcvbufErrors {full}, Udp.InErrors {full}");
        let scene = two_sockets("").now(|after| after.sockets[0].drops = 0);
        let buffers = scene.counting(&counters).see(full_buffers::FullBuffers::of);
        assert_eq!(buffers.is_sure, is_sure, "{full}");
    }
}

#[test]
fn counters_of_ipsec_name_the_refusal() {
    for (rows, words) in [
        (
            "XfrmInTmplMismatch 1500, XfrmInNoPols 0",
            "asks for encryption",
        ),
        ("XfrmInPolBlock 1500", "blocks them"),
        (
            "XfrmInNoPols 1500, XfrmInPolBlock 20",
            "blocks them; or no inbound policy",
        ),
    ] {
        let scene = two_sockets(rows).port(53);
        let named = scene.clone().drops("XFRM_POLICY 1500");
        for (scene, check) in [(scene, "udp_errors"), (named, "drop_reason")] {
            let expected = format!("{check} 1500 likely alone: {words} | !BPF");
            tells(&looked(&scene), &expected);
        }
    }
    // Fewer were refused by IPsec than by UDP.
    let few = two_sockets("XfrmInNoPols 20").port(53);
    tells(&looked(&few), "udp_errors: look alike here");
}

#[test]
fn programs_of_the_cgroup_tell_a_filter_from_a_rule() {
    let program = IngressProgram {
        group: "/system.slice/nsd.service".to_owned(),
        name: "sd_fw_ingress".to_owned(),
        folder: "/sys/fs/cgroup/system.slice/nsd.service".to_owned(),
    };
    let rule = "BPF program of cgroup /system.slice/nsd.service (sd_fw_ingress) dropped what came to 10.0.0.1:53";
    for (ingress, expected) in [
        (
            Some(vec![program]),
            format!("likely alone: {rule} | systemctl show nsd.service"),
        ),
        (
            Some(vec![]),
            "likely alone: a filter of the socket itself | strace".to_owned(),
        ),
        (
            None,
            "possible alone: a BPF program of its cgroup did | bpftool".to_owned(),
        ),
    ] {
        let scene = two_sockets("").drops("SOCKET_FILTER 1500").port(53);
        let scene = scene.now(|after| reader(after).ingress = ingress);
        tells(&looked(&scene), &format!("drop_reason 1500 {expected}"));
    }
}
