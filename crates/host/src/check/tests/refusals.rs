//! Drops of sockets without a full buffer, and their causes.

use super::*;
use crate::facts::IngressProgram;

/// A socket that was refused 1500 datagrams, and one with a full buffer that lost 1244.
fn two_sockets() -> (Observation, Observation) {
    let at = |refused: u32, full: u32| {
        let errors = u64::from(refused + full);
        let mut facts = host(&[
            ("Ip.InReceives", errors),
            ("Ip.InDelivers", errors),
            ("Udp.InErrors", errors),
            ("Udp.RcvbufErrors", full.into()),
        ]);
        let queued_bytes = if full > 0 { 212_992 } else { 0 };
        let other = UdpEntry {
            queued_bytes,
            ..socket("10.0.0.1:54", 2, full)
        };
        facts.sockets = vec![socket("10.0.0.1:53", 1, refused), other];
        has(&mut facts, 1, owner(0, 0));
        facts
    };
    (at(0, 0), later(at(1500, 1244)))
}

fn looked(
    hosts: &(Observation, Observation),
    drops: Option<&[DropCount]>,
    port: Option<u16>,
) -> Vec<Finding> {
    let drops = drops.map(|drops| (&[][..], drops, 1));
    let found = findings(&Observed::new(&hosts.0, &hosts.1, drops, asked(port)));
    found.into_iter().filter(|one| !one.is_remark).collect()
}

#[test]
fn a_refused_socket_has_no_full_buffer() {
    let hosts = two_sockets();
    let all = looked(&hosts, None, None);
    let expected = is(&[("udp_errors", 1500), ("socket_buffer", 1244)]);
    assert_eq!(told(&all), expected, "{all:#?}");
    assert!(
        all[0].what.contains("their buffers were not full"),
        "{all:#?}"
    );
    assert!(all[1].what.contains("10.0.0.1:54"), "{all:#?}");
    assert_eq!(all[0].confidence, Confidence::Possible);
    assert_eq!(all[1].confidence, Confidence::Possible);
    let one = looked(&hosts, None, Some(53));
    assert_eq!(told(&one), is(&[("udp_errors", 1500)]), "{one:#?}");
    // The reasons of the port show it, even if the other one's buffer is empty again.
    let mut hosts = hosts;
    hosts.1.sockets[1].queued_bytes = 0;
    hosts.1.sockets[1].drops = 0;
    let reasons = [dropped("SOCKET_FILTER", 1500)];
    let one = looked(&hosts, Some(&reasons), Some(53));
    assert_eq!(told(&one), is(&[("drop_reason", 1500)]), "{one:#?}");
}

#[test]
fn a_full_buffer_is_sure_by_its_own_counter_only() {
    for (full, is_sure) in [(1244, true), (1230, true), (1100, false), (0, false)] {
        let (before, mut after) = two_sockets();
        after.sockets[0].drops = 0;
        let grown = [("Udp.RcvbufErrors", full), ("Udp.InErrors", full)];
        after.snapshot.snmp = host(&grown).snapshot.snmp;
        let seen = Observed::new(&before, &after, None, asked(None));
        assert_eq!(
            full_buffers::FullBuffers::of(&seen).is_sure,
            is_sure,
            "{full}"
        );
    }
}

#[test]
fn counters_of_ipsec_name_the_refusal() {
    let with = |rows: &str| {
        let (mut before, mut after) = two_sockets();
        let zero = rows.replace(" 1500", " 0").replace(" 20", " 0");
        before
            .snapshot
            .snmp
            .add_rows(&zero)
            .expect("rows of a test");
        after.snapshot.snmp.add_rows(rows).expect("rows of a test");
        (before, after)
    };
    let reasons = [dropped("XFRM_POLICY", 1500)];
    for (rows, words) in [
        (
            "XfrmInTmplMismatch 1500\nXfrmInNoPols 0",
            "asks for encryption",
        ),
        ("XfrmInPolBlock 1500", "blocks them"),
        (
            "XfrmInNoPols 1500\nXfrmInPolBlock 20",
            "blocks them; or no inbound policy",
        ),
    ] {
        let hosts = with(rows);
        for (drops, check) in [(None, "udp_errors"), (Some(&reasons[..]), "drop_reason")] {
            let found = looked(&hosts, drops, Some(53));
            assert_eq!(told(&found), is(&[(check, 1500)]), "{rows} {found:#?}");
            assert!(found[0].what.contains(words), "{found:#?}");
            assert!(!found[0].what.contains("BPF"), "{found:#?}");
            assert_eq!(found[0].confidence, Confidence::Likely);
        }
    }
    // Fewer were refused by IPsec than by UDP.
    let found = looked(&with("XfrmInNoPols 20"), None, Some(53));
    assert!(found[0].what.contains("look alike here"), "{found:#?}");
}

#[test]
fn programs_of_the_cgroup_tell_a_filter_from_a_rule() {
    let program = IngressProgram {
        group: "/system.slice/nsd.service".to_owned(),
        name: "sd_fw_ingress".to_owned(),
        folder: "/sys/fs/cgroup/system.slice/nsd.service".to_owned(),
    };
    let reasons = [dropped("SOCKET_FILTER", 1500)];
    for (ingress, words, remedy, confidence) in [
        (
            Some(vec![program]),
            "BPF program of cgroup /system.slice/nsd.service (sd_fw_ingress) dropped what came to 10.0.0.1:53",
            "systemctl show nsd.service",
            Confidence::Likely,
        ),
        (
            Some(vec![]),
            "a filter of the socket itself",
            "strace",
            Confidence::Likely,
        ),
        (
            None,
            "a BPF program of its cgroup did",
            "bpftool",
            Confidence::Possible,
        ),
    ] {
        let mut hosts = two_sockets();
        hosts
            .1
            .processes
            .get_mut(&812)
            .expect("it is there")
            .ingress = ingress;
        let found = looked(&hosts, Some(&reasons), Some(53));
        assert_eq!(told(&found), is(&[("drop_reason", 1500)]), "{found:#?}");
        assert!(found[0].what.contains(words), "{found:#?}");
        assert!(found[0].remedy.contains(remedy), "{found:#?}");
        assert_eq!(found[0].confidence, confidence);
    }
}
