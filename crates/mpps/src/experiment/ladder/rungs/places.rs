//! The CPUs of the tasks of each rung, on machines that are written down.

use super::*;
use crate::experiment::ladder::rungs::with_references;
use crate::udp::roles::distinct;
use crate::udp::roles::tests::{
    article, flat, hybrid, machine, roles, two_by_four_by_two, two_by_two_by_two, two_cpus,
    two_cpus_tied,
};
use mpps_host::Topology;
use mpps_io::backend::Support;
use mpps_lab::Delivery;
use mpps_trial::mentions;

/// All rungs, also those that the host has too few CPUs for.
fn all(layout: &CpuLayout) -> Vec<Rung> {
    let rungs = rungs(layout, &fours(), true).into_iter();
    rungs.filter(|rung| !rung.is_beyond()).collect()
}

/// A sender that reaches every queue.
fn fours() -> SenderChoice {
    SenderChoice::new(None, Some(4), 4).expect("no generator has to be looked for")
}

fn rung(layout: &CpuLayout, number: &str) -> Rung {
    let mut own = all(layout).into_iter().filter(|rung| rung.number == number);
    own.next().expect("the ladder has it")
}

/// The rungs that are skipped, with the reason.
fn skipped(topology: Topology) -> Vec<(&'static str, String)> {
    let rungs = rungs(&CpuLayout::new(topology, None), &fours(), false);
    let skipped = rungs.into_iter().filter(|rung| rung.number != "17");
    skipped
        .filter_map(|rung| Some((rung.number, rung.skipped?)))
        .collect()
}

#[test]
fn a_rung_that_this_host_cannot_show_says_what_it_needs() {
    let why = |rungs: &[(&'static str, String)], number: &str| {
        let found = rungs.iter().find(|(one, _)| *one == number);
        found.map(|(_, why)| why.clone())
    };
    let two = skipped(flat(2));
    let numbers: Vec<&str> = two.iter().map(|(number, _)| *number).collect();
    let misleading = ["4b", "4d", "5", "6", "7", "8b", "8c", "9a", "9b", "10"];
    assert_eq!(numbers, misleading);
    assert_eq!(why(&two, "5").unwrap(), "needs 3 CPUs; here 2");
    assert_eq!(why(&two, "6").unwrap(), "needs 5 CPUs; here 2");
    assert_eq!(why(&two, "7").unwrap(), "needs 4 CPUs; here 2");
    assert_eq!(why(&two, "9a").unwrap(), "needs 8 CPUs; here 2");
    assert_eq!(why(&two, "9b").unwrap(), "needs 8 CPUs; here 2");
    let numbers =
        |topology| -> Vec<&str> { skipped(topology).into_iter().map(|(one, _)| one).collect() };
    assert_eq!(
        numbers(flat(3)),
        ["4b", "4d", "6", "7", "8b", "8c", "9a", "9b", "10"]
    );
    assert_eq!(numbers(flat(5)), ["4b", "4d", "8b", "8c", "9a", "9b", "10"]);
    assert_eq!(numbers(flat(8)), ["4b", "4d", "9b"]);
    assert_eq!(numbers(flat(12)), ["4b", "4d", "9b"]);
    for whole in [article(), two_by_four_by_two()] {
        assert_eq!(numbers(whole), [""; 0]);
    }
    // Four CPUs of each node are too few for four queues and four threads.
    let eight = skipped(two_by_two_by_two());
    let near = "needs 8 CPUs on one node; here 4";
    assert_eq!(why(&eight, "9a").unwrap(), near);
}

#[test]
fn nothing_shares_a_cpu_on_a_rung_that_has_its_own() {
    for topology in [
        flat(3),
        flat(5),
        flat(8),
        flat(12),
        two_by_four_by_two(),
        article(),
        hybrid(),
    ] {
        for rung in rungs(&CpuLayout::new(topology, None), &fours(), false) {
            if rung.skipped.is_some() || ["1", "4a", "4e", "8a"].contains(&rung.number) {
                continue;
            }
            let threads = rung.trial.sockets.threads();
            let applications = distinct(rung.trial.layout.applications[..threads].to_vec());
            let queues = rung
                .trial
                .queues()
                .into_iter()
                .map(|queue| rung.trial.layout.queues[queue]);
            let queues = distinct(queues.collect());
            assert_eq!(applications.len(), threads, "rung {}", rung.number);
            assert_eq!(
                queues.len(),
                rung.trial.queues().len(),
                "rung {}",
                rung.number
            );
            let is_apart = !queues.iter().any(|cpu| applications.contains(cpu));
            assert!(
                is_apart,
                "rung {}: {queues:?} {applications:?}",
                rung.number
            );
        }
    }
}

/// The CPUs of a rung's senders and applications.
fn placed(topology: Topology, number: &str) -> [Vec<usize>; 2] {
    let rung = rung(&CpuLayout::new(topology, None), number);
    assert_eq!(rung.skipped, None, "rung {number}");
    [rung.trial.layout.senders, rung.trial.layout.applications]
}

#[test]
fn with_two_cores_the_application_has_one_to_itself() {
    let threads = machine((0..4).map(|id| (id, 0, vec![id / 2 * 2, id / 2 * 2 + 1])));
    assert_eq!(roles(threads), [vec![0], vec![1; 4], vec![2, 3]]);
    let one_core = machine((0..2).map(|id| (id, 0, vec![0, 1])));
    assert_eq!(roles(one_core.clone()), [vec![0], vec![0; 4], vec![1]]);
    let layout = CpuLayout::new(one_core, None);
    assert_eq!(rung(&layout, "4b").trial.layout.applications, [1]);
    for number in ["4c", "4e"] {
        assert!(rung(&layout, number).skipped.is_some());
    }
    let said = rung(&layout, "2").sharing(true);
    assert_eq!(
        said,
        [
            "receive queues and application share a core",
            "sender and application share a core"
        ]
    );
}

#[test]
fn two_cpus_have_their_queues_in_the_senders_soft_interrupts() {
    let layout = two_cpus();
    assert_eq!(layout.delivery, Delivery::SoftInterrupt);
    let all = all(&layout);
    for rung in all.iter().filter(|rung| rung.skipped.is_none()) {
        let shares = rung.sharing(true);
        let is_alone = !shares.iter().any(|note| note.contains("and application"));
        assert!(is_alone, "rung {}: {shares:?}", rung.number);
        let (delivery, queue, role) = match rung.number {
            "3" => (Delivery::ThreadedNapi, 0, "application"),
            "4a" | "4e" => (Delivery::ThreadedNapi, 1, "queue 0"),
            _ => (Delivery::SoftInterrupt, 0, "application"),
        };
        let layout = &rung.trial.layout;
        assert_eq!((layout.delivery, layout.queues[0]), (delivery, queue));
        if rung.number != "1" {
            assert_eq!(layout.applications, [1], "rung {}", rung.number);
            assert_eq!(rung.roles(1, true)[0], role, "rung {}", rung.number);
        }
    }
    let said = layout.notes(true).join("\n");
    mentions(&said, "served in soft interrupts of the sender's CPU 0");
    let said = layout.sentence(true, "6.18");
    mentions(&said, "queues on CPU 0 in the sender's soft interrupts");
    let tied = two_cpus_tied();
    assert_eq!(
        (&tied.queues[..], &tied.applications[..]),
        (&[1; 4][..], &[1][..])
    );
    assert_eq!(rung(&tied, "4a").trial.layout, tied);
}

#[test]
fn a_rung_is_where_its_name_says_and_in_nobodys_way() {
    for (topology, queue, sibling, same_node, other_node) in [
        (flat(2), 0, None, Some(1), None),
        (flat(4), 1, None, Some(2), None),
        (two_by_two_by_two(), 0, Some(1), Some(2), Some(4)),
        (flat(8), 2, None, Some(4), None),
        (flat(12), 4, None, Some(8), None),
        (article(), 0, Some(12), Some(2), Some(10)),
        (hybrid(), 8, Some(9), Some(0), None),
    ] {
        let layout = CpuLayout::new(topology, None);
        assert_eq!(layout.queues[0], queue);
        let places = [("4b", sibling), ("4c", same_node), ("4d", other_node)];
        for (number, cpu) in places {
            let rung = rung(&layout, number);
            assert_eq!(rung.skipped.is_none(), cpu.is_some(), "rung {number}");
            let Some(cpu) = cpu else { continue };
            assert_eq!(rung.trial.layout.applications, [cpu], "rung {number}");
            assert_eq!(rung.sharing(true), [""; 0], "rung {number}, queue {queue}");
        }
    }
}

#[test]
fn the_other_node_gives_four_threads_four_cpus_away_from_the_senders() {
    assert_eq!(placed(two_by_two_by_two(), "4d"), [vec![2, 3], vec![4]]);
    let vacated = [vec![4, 6, 5, 7], vec![8, 10, 9, 11]];
    assert_eq!(placed(two_by_four_by_two(), "9b"), vacated);
    let vacated = [vec![2, 3, 4, 5], vec![6, 7, 8, 9]];
    assert_eq!(placed(article(), "9b"), vacated);
    assert_eq!(placed(article(), "4d"), [vec![6, 7, 8, 9], vec![10]]);
    // Sixteen cores leave four of the senders' node free.
    let large = machine((0..16).map(|id| (id, id / 8, vec![id])));
    assert_eq!(
        placed(large, "9b"),
        [vec![8, 9, 10, 11], vec![12, 13, 14, 15]]
    );
    for topology in [two_by_four_by_two(), article()] {
        let layout = CpuLayout::new(topology, None);
        let [near, far] = ["9a", "9b"].map(|number| rung(&layout, number));
        let cores = |rung: &Rung| layout.cores(&rung.trial.layout.applications);
        assert_eq!(cores(&near), cores(&far));
        let said = [far.notes.clone(), far.sharing(true)].concat().join("\n");
        assert!(!said.contains("and application"), "{said}");
    }
}

#[test]
fn a_cpu_whose_queue_or_thread_a_rung_does_not_use_has_no_role_on_it() {
    let layout = CpuLayout::new(two_by_two_by_two(), None);
    let used = |number| {
        let rung = rung(&layout, number);
        let cpus = (0..8).filter(|cpu| !rung.roles(*cpu, true).is_empty());
        cpus.collect::<Vec<_>>()
    };
    assert_eq!(used("2"), [0, 2, 4]);
    assert_eq!(used("5"), [0, 1, 2, 4, 6]);
    assert_eq!(used("9a"), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn several_queues_and_sockets_are_compared_as_in_the_article() {
    let layout = CpuLayout::new(article(), None);
    for (number, expected) in [("7", &["5"][..]), ("8b", &["7"]), ("9a", &["2", "8c"])] {
        let references: Vec<_> = rung(&layout, number).references().collect();
        assert_eq!(references, expected, "rung {number}");
    }
    let [one, two] = ["5", "7"].map(|number| rung(&layout, number).trial);
    assert_eq!((one.targets, two.targets), (&[1, 2][..], &[1, 2][..]));
    let threads = [one, two].map(|trial| trial.sockets);
    assert_eq!(threads, [1, 2].map(TrialSockets::Shared));
}

/// The rungs that run on a machine and whose lesson no figure can show there.
fn untold(layout: CpuLayout, choice: &SenderChoice) -> String {
    let choice = choice.clone().reaching(&layout);
    let mut rungs = with_references(rungs(&layout, &choice, false));
    rungs.retain(|rung| rung.skipped.is_none());
    let is_told = |rung: &&Rung| {
        let is_alike = |reference| {
            let mut known = rungs.iter().filter(|one| one.number == reference);
            known.any(|reference| rung.is_like(reference))
        };
        let is_of_queue = matches!(rung.points[0], Point::LostAt(_));
        let is_soft = rung.trial.layout.delivery == Delivery::SoftInterrupt;
        rung.references().all(is_alike) && !(is_of_queue && is_soft)
    };
    let open = rungs.iter().filter(|rung| !is_told(rung));
    let mut numbers: Vec<&str> = open.map(|rung| rung.number).collect();
    numbers.dedup();
    numbers.join(" ")
}

#[test]
fn a_rate_is_held_against_one_of_the_same_sender_and_delivery() {
    let threads = |step: usize, cpus| machine((0..cpus).map(move |id| (id, 0, siblings(id, step))));
    let root = SenderChoice::with(None, None, 4, || Ok(Support::Yes)).unwrap();
    for (name, topology, expected) in [
        ("2", flat(2), ""),
        ("4", flat(4), ""),
        // Five CPUs leave none to a sender beside four queues and a thread.
        ("5", flat(5), "6"),
        ("6", flat(6), ""),
        ("8", flat(8), ""),
        ("12", flat(12), ""),
        ("16", flat(16), ""),
        ("4 cores, siblings adjacent", threads(1, 8), ""),
        ("4 cores, siblings apart", threads(4, 8), ""),
        ("8 cores, siblings adjacent", threads(1, 16), ""),
        ("8 cores, siblings apart", threads(8, 16), ""),
        ("2x2x2", two_by_two_by_two(), ""),
        ("2x4x2", two_by_four_by_two(), ""),
        ("2x6x2", article(), ""),
        ("6P+8E", hybrid(), ""),
    ] {
        // An ordinary user sends from sockets.
        for choice in [&root, &fours()] {
            let untold = untold(CpuLayout::new(topology.clone(), None), choice);
            assert_eq!(untold, expected, "{name}, {}", choice.sender);
        }
    }
}

/// The hyper-threads of a CPU's core, whose numbers are `step` apart.
fn siblings(cpu: usize, step: usize) -> Vec<usize> {
    let first = cpu / (2 * step) * (2 * step) + cpu % step;
    vec![first, first + step]
}
