//! The changes of `mpps tune` to a card and its host, and their restoration.

use super::common::{Ended, Running, run};
use super::{ADDRESS, RATE, at, ip, meet, result, trial};
use libtest_mimic::Trial;
use serde_json::Value;

/// A name for the machine's first network namespace, where its own settings can be set.
pub(super) const FIRST: &str = "first";

/// Settings that a user may have made before, as far as the card has them. They are more channels
/// than cores, a setting of one queue, a table, and settings for all cards. Each line is
/// independent.
const ODD: &str = "
    ethtool -L eth1 combined 4 || ethtool -L eth1 combined 1
    ethtool -X eth1 equal 1
    ethtool -N eth1 rx-flow-hash udp4 sd
    ethtool -C eth1 rx-usecs 0
    ethtool -K eth1 gro off
    cd /sys/class/net/eth1/queues
    for queue in rx-*; do echo 2 > $queue/rps_cpus; echo 64 > $queue/rps_flow_cnt; done
    for queue in tx-*; do echo 2 > $queue/xps_cpus; echo 5000 > $queue/byte_queue_limits/limit_min; done
    for list in /proc/irq/*/eth1*/../smp_affinity_list; do echo 1 > $list; done
    sysctl -w net.core.netdev_budget=200 net.core.rmem_max=100000 net.core.netdev_max_backlog=500";

/// The changes that every card and machine here has.
const EVERYWHERE: [&str; 8] = [
    "rx-gro off -> on",
    "threaded 0 -> 1",
    "gro_flush_timeout 0 -> 20000",
    "napi_defer_hard_irqs 0 -> 1",
    "queues/rx-0/rps_flow_cnt 64 -> ",
    "net.core.rps_sock_flow_entries 0 -> 32768",
    "net.core.netdev_budget 200 -> 600",
    "net.core.rmem_max 100000 -> 33554432",
];

pub(super) fn trials() -> [Trial; 3] {
    let trials = [
        ("mpps tune apply, undo", tunes as fn()),
        ("mpps tune prove", proves),
        ("mpps tune prove keeps what helps", keeps_what_helps),
    ];
    trials.map(|(name, test)| trial(name.to_owned(), None, test))
}

/// The trial that comes last, because the card goes to another host.
pub(super) fn last() -> Trial {
    let name = "every stage of mpps tune, on the machine itself".to_owned();
    trial(name, None, tunes_every_stage)
}

/// Moves the card to the machine's first network namespace.
pub(super) fn to_first() {
    ip(&["netns", "attach", FIRST, "1"]);
    ip(&["-n", "b", "link", "set", "eth1", "netns", FIRST]);
    ip(&["link", "set", "eth1", "up"]);
}

/// In the machine's first network namespace, every stage with a change applies it and restores it.
/// That includes settings of queues that went. Other programs confirm it.
fn tunes_every_stage() {
    to_first();
    run(at(FIRST, "sh").args(["-c", ODD]));
    let odd = state(FIRST);
    let tune = |words: &[&str]| run(at(FIRST, "mpps").arg("tune").args(words)).fine().out;
    for goal in ["udp", "tcp", "af_xdp"] {
        let plan = tune(&["plan", "eth1", "--for", goal, "--json"]);
        let plan: Value = serde_json::from_str(&plan).expect("it is JSON");
        let steps = plan["steps"].as_array().expect("a list").iter();
        let all: Vec<&str> = steps
            .clone()
            .map(|step| step["stage"].as_str().expect("a text"))
            .collect();
        let applied = tune(&["apply", "eth1", "--for", goal, "--only", &all.join(",")]);
        eprintln!("{applied}");
        let changing = steps.filter(|step| step["verdict"] == "change" || step["verdict"] == "try");
        for step in changing {
            for edit in step["edits"].as_array().expect("a list") {
                let edit = edit["edit"].as_str().expect("a text");
                assert!(applied.contains(edit), "{edit}: {applied}");
            }
        }
        if goal == "udp" {
            if plan["driver"] == "igb" {
                for (queue, file) in [(3, "rps_cpus:2"), (3, "rps_flow_cnt:64")] {
                    assert!(odd.contains(&format!("rx-{queue}/{file}")), "{odd}");
                }
                assert!(
                    odd.contains("tx-3/byte_queue_limits/limit_min:5000"),
                    "{odd}"
                );
            }
            for edit in EVERYWHERE {
                assert!(applied.contains(edit), "{edit}: {applied}");
            }
            let of_card: &[&str] = match plan["driver"].as_str() {
                Some("igb") => &[
                    "combined channels 4 -> 2",
                    "rx-usecs 0 -> 40",
                    "rx-flow-hash udp4 sd -> sdfn",
                    "queues/rx-1/rps_cpus 2 -> 0",
                ],
                Some("e1000e") => &[
                    "rx-usecs 0 -> 40",
                    "net.core.netdev_max_backlog 500 -> 10000",
                ],
                _ => &["another RSS table"],
            };
            for edit in of_card {
                assert!(applied.contains(edit), "{edit}: {applied}");
            }
        }
        assert_ne!(state(FIRST), odd);
        let undone = tune(&["undo", "eth1"]);
        let after = state(FIRST);
        assert_eq!(after, odd, "{undone}");
    }
}

/// The changes of `mpps tune` to a card are there, and datagrams arrive by it. Afterwards the host
/// is what it was, as other programs show it.
fn tunes() {
    for goal in ["udp", "af_xdp"] {
        let before = state("b");
        let plan = run(at("b", "mpps").args(["tune", "plan", "eth1", "--for", goal, "--json"]));
        let plan: Value = serde_json::from_str(&plan.fine().out).expect("it is JSON");
        let steps = plan["steps"].as_array().expect("a list").iter();
        let changing = steps.filter(|step| step["verdict"] == "change");
        let edits = changing.flat_map(|step| step["edits"].as_array().expect("a list"));
        let edits: Vec<&Value> = edits.collect();
        // For sockets virtio_net is as it should be.
        assert!(!edits.is_empty() || goal == "udp", "{plan:#}");
        let applied = run(at("b", "mpps").args(["tune", "apply", "eth1", "--for", goal]));
        let applied = applied.fine();
        eprintln!("{}", applied.out);
        if edits.is_empty() {
            assert_eq!(state("b"), before);
            continue;
        }
        for edit in edits {
            let edit = edit["edit"].as_str().expect("a text");
            assert!(applied.out.contains(edit), "{edit}: {}", applied.out);
        }
        let applied = state("b");
        assert_ne!(applied, before);
        meet();
        // A proof builds on the applied changes, and goes with them.
        let proved = prove(&["--quick", "--only", "threaded-napi,rps"]);
        eprintln!("{}", proved.out);
        assert_eq!(state("b") == applied, !proved.out.contains("is kept until"));
        let undone = run(at("b", "mpps").args(["tune", "undo", "eth1"])).fine();
        assert_eq!(state("b"), before, "{}", undone.out);
        meet();
    }
}

/// A stage is measured with datagrams that arrive by the card, with and without it in turn.
/// Afterwards the host is what it was.
fn proves() {
    const STAGES: [&str; 2] = ["napi-defer", "rps"];
    let before = state("b");
    let proved = prove(&["--quick", "--only", &STAGES.join(","), "--put-back"]);
    eprintln!("{}", proved.out);
    assert_eq!(state("b"), before, "{}", proved.out);
    let found = result("tune-prove.json");
    let rows = found["rows"].as_array().expect("a list");
    assert!(rows.len() > 1, "{found:#}");
    for row in rows {
        let (stage, stopped) = (&row["stage"], &row["stopped"]);
        assert!(
            *stage == "nothing" || STAGES.iter().any(|one| stage == one),
            "{row:#}"
        );
        assert!(stopped.is_null(), "{row:#}");
        for side in ["without", "with"] {
            let rates = row[side]["mpps_samples"].as_array().expect("a list");
            assert!(
                !rates.is_empty() && rates.iter().all(|rate| rate.as_f64() > Some(0.0)),
                "{row:#}"
            );
        }
    }
}

/// A firewall lets few packets of new connections pass. Without tracking all pass.
fn keeps_what_helps() {
    const FIREWALL: &str = "table inet firewall { chain input { type filter hook input priority 0; \
        udp dport 4321 ct state new limit rate over 100/second drop; }; }";
    let nft = |statement: &str| run(at("b", "nft").arg(statement)).fine().out;
    let before = state("b");
    nft(FIREWALL);
    let rules = nft("list ruleset");
    // The proof comes on top of an applied change, and goes with it.
    let apply = ["tune", "apply", "eth1", "--only", "napi-defer"];
    run(at("b", "mpps").args(apply)).fine();
    assert_ne!(state("b"), before);
    let proved = prove(&["--seconds", "300ms", "--only", "notrack"]);
    eprintln!("{}", proved.out);
    let row = proved
        .out
        .lines()
        .find(|line| line.trim_start().starts_with("notrack"));
    assert!(
        row.is_some_and(|row| row.contains("kept: more packets")),
        "{}",
        proved.out
    );
    assert!(nft("list ruleset").contains("udp dport 4321 notrack"));
    let undone = run(at("b", "mpps").args(["tune", "undo", "eth1"])).fine();
    assert_eq!(nft("list ruleset"), rules, "{}", undone.out);
    nft("delete table inet firewall");
    assert_eq!(state("b"), before);
}

/// Measures with datagrams that arrive all the while.
fn prove(words: &[&str]) -> Ended {
    let mut sending = at("a", "mpps");
    sending.args(["send", ADDRESS, "--rate", RATE, "--duration", "600s"]);
    let _sending = Running::start(&mut sending);
    let mut proving = at("b", "mpps");
    proving.args(["tune", "prove", "eth1", "--port", "4321"]);
    run(proving.args(words)).fine()
}

/// The settings of the receiver's card and host, as other programs and the kernel's files show
/// them.
pub(super) fn state(host: &str) -> String {
    const TELL: &str =
        "ethtool -g eth1; ethtool -l eth1; ethtool -c eth1; ethtool -k eth1; ethtool -x eth1
        for kind in udp4 udp6 tcp4 tcp6; do ethtool -n eth1 rx-flow-hash $kind; done
        ethtool -n eth1; ethtool -Q eth1 --show-coalesce
        cd /sys/class/net/eth1; grep -H . gro_flush_timeout napi_defer_hard_irqs threaded
        grep -H . queues/*/*ps_cpus queues/*/rps_flow_cnt queues/*/byte_queue_limits/limit_m* /proc/irq/*/smp_affinity_list
        sysctl -a -r '^net.core'";
    let told = run(at(host, "sh").args(["-c", TELL]));
    // Some of it this card or kernel has not, and says so.
    assert!(told.out.len() > 1000, "{told:#?}");
    format!("{}{}", told.out, told.err)
}
