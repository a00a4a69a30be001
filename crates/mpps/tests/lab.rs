//! `mpps lab` from end to end: the ladder, its ledgers and files, commands on the receiver host,
//! interruption, and an ordinary user's lab.

mod commands;
mod output;
mod placement;
mod points;

use crate::common::{self, Ended, Running, directory, mpps, run};
use mpps::experiment::ladder::result::{LabBody, LabResult, RungCpuBusy, RungResult, TakenBy};
use mpps_host::Witness;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        pure: points::kept_ladders_show_the_points_of_several_queues;
        waits: the_rungs_are_listed, a_sender_that_cannot_be_is_named;
        // They look at counters and threads of the whole host.
        measures(Need::probe(common::lab)):
            every_rung_is_accounted_for_and_shows_its_point,
            a_short_climb_is_written_and_adds_up,
            rps_delivers_too;
        waits(Need::probe(common::lab)):
            output::the_answer_comes_first_and_the_rest_if_asked_for,
            trains_that_were_asked_for_stay,
            work_limits_a_further_run_of_each_rung,
            killed_it_keeps_what_it_has,
            who_reads_no_more_ends_only_its_printing,
            placement::the_receiver_is_measured_in_each_place_that_there_is;
        waits(Need::Root):
            placement::what_arrives_at_an_interface_is_accounted_for,
            the_generator_sends_where_it_reaches_the_queue,
            output::an_unwritable_folder_costs_the_files_and_not_the_run,
            an_ordinary_user_has_a_lab;
        waits(Need::probe(common::lab)):
            a_group_that_one_flow_reaches_says_so,
            commands::commands_run_on_the_receiver,
            commands::a_signal_ends_the_command_and_the_lab,
            commands::a_command_ends_as_it_likes,
            a_train_that_the_path_cannot_carry_is_named,
            interrupted_it_keeps_what_it_has,
            a_result_that_cannot_be_written_is_named;
        waits(Need::probe(common::lab), Need::Program("python3", "python3")):
            commands::a_killed_command_leaves_the_terminal_as_it_was,
            commands::a_stopped_command_hears_ctrl_c;
        waits(Need::Root, Need::Program("python3", "python3")):
            output::ctrl_c_leaves_no_bar_and_skips_no_rung;
        waits(Need::Root, Need::Program("unshare", "util-linux")):
            without_its_sysctls_it_is_silent,
            a_pid_namespace_without_kernel_threads_has_a_lab;
    ]
}

/// Climbs in a directory, with names of its own for the files.
fn climb(directory: &TempDir, arguments: &[&str]) -> Ended {
    let mut command = mpps(&["lab", "--json=data.json", "--html", "page.html"]);
    run(command.args(arguments).current_dir(directory))
}

/// The result in a directory, held to the schema and to its own arithmetic.
fn result(directory: &TempDir) -> LabResult {
    let text = common::valid::<LabBody>(&directory.path().join("data.json"));
    // This also refuses a ledger whose terms do not give its remainder.
    LabResult::parse(&text).expect("it reads what it wrote")
}

/// Every datagram is accounted for. Returns how many were offered.
///
/// A socket that takes trains counts its drops in trains. So without the drop probe, as in the runs
/// behind the rates, its ledger is marked inexact. It may then have a remainder.
fn accounted_for(result: &LabResult) -> u64 {
    accounted_for_but(result, |_, _| false)
}

/// The same where some witnesses are known to err.
fn accounted_for_but(result: &LabResult, errs: fn(&str, &Witness) -> bool) -> u64 {
    let mut offered = 0;
    let mut faults = Vec::new();
    for rung in result
        .rungs
        .iter()
        .filter(|rung| rung.runs.skipped.is_none())
    {
        let exact = rung
            .runs
            .ledger
            .as_ref()
            .expect("a measured rung has a ledger");
        for (at, ledger) in std::iter::once(exact)
            .chain(&rung.runs.sample_ledgers)
            .enumerate()
        {
            offered += ledger.offered;
            assert!(ledger.offered > 0, "rung {} sent nothing", rung.rung);
            let is_probed = at == 0 && result.drop_probe_ns.is_some();
            let is_exact = ledger.losses.iter().all(|loss| loss.exact);
            if is_probed {
                assert!(is_exact, "rung {}: {ledger}", rung.rung);
            }
            if !is_exact {
                assert!(rung.name.contains("GRO"), "rung {}: {ledger}", rung.rung);
            } else if ledger.unaccounted != 0 {
                faults.push(format!("rung {}: {ledger}", rung.rung));
            }
            for witness in ledger.witnesses.iter().filter(|_| is_exact) {
                let is_known = misses_few(witness) || errs(&rung.rung, witness);
                if !witness.agrees() && !is_known {
                    faults.push(format!("rung {}: {witness:?}", rung.rung));
                }
            }
        }
    }
    assert_eq!(faults, [""; 0]);
    offered
}

/// Lessons stay those of the runs without work; 100 us leave 0.01 Mpps.
fn work_limits_a_further_run_of_each_rung() {
    let directory = directory();
    let ended = climb(&directory, &["--quick", "--only=2,18", "--work=100us"]).fine();
    for words in ["with work", "with 100us of work: recvmmsg 0.0"] {
        assert!(ended.out.contains(words), "{words}: {ended:#?}");
    }
    let result = result(&directory);
    accounted_for(&result);
    assert_eq!(result.work.as_deref(), Some("100us"));
    assert!(result.rungs[1].with_work.is_none(), "a rule does no work");
    let worked = result.rungs[0]
        .with_work
        .as_ref()
        .expect("it was asked for");
    let (rate, ledger) = (worked.mpps_median.unwrap_or(0.0), &worked.sample_ledgers[0]);
    assert!(rate > 0.0 && rate <= 0.01, "{worked:?}");
    assert_eq!(ledger.unaccounted, 0, "{ledger}");
    assert!(result.rungs[0].runs.mpps_median > Some(rate));
}

fn the_rungs_are_listed() {
    let list = run(&mut mpps(&["lab", "--list"])).fine();
    let numbers: Vec<&str> = list
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for number in [
        "1", "2", "2b", "2c", "3", "4a", "5", "6", "7", "8a", "8b", "8c", "9a", "10", "11", "12",
        "13", "14", "15", "16", "17", "18",
    ] {
        assert!(numbers.contains(&number), "{list:#?}");
    }
    let some = run(&mut mpps(&["lab", "--list", "--only", "4"])).fine();
    let letters = some
        .out
        .lines()
        .filter(|line| line.trim_start().starts_with('4'));
    assert_eq!(letters.count(), some.out.lines().count(), "{some:#?}");
}

fn a_short_climb_is_written_and_adds_up() {
    let directory = directory();
    let ended = climb(&directory, &["--quick", "--only", "1,2", "-v"]).fine();
    // The screens are those of the receiving host, and no other traffic is in its counters.
    for part in [
        "rung 2 one socket, pinned",
        " mpps-rx  rx_queue_",
        " UDP ",
        " busy = user ",
    ] {
        assert!(ended.err.contains(part), "{part}: {ended:#?}");
    }
    let result = result(&directory);
    let rungs: Vec<&str> = result.rungs.iter().map(|rung| rung.rung.as_str()).collect();
    assert_eq!(rungs, ["1", "2"]);
    assert!(result.quick && result.complete);
    assert!(result.command.starts_with("mpps lab"), "{}", result.command);
    assert!(accounted_for(&result) > 0);
    for rung in &result.rungs {
        assert_eq!(rung.runs.mpps_samples.len(), rung.runs.sample_ledgers.len());
        assert_eq!(rung.threads.len(), 1);
        let path = rung.path.as_ref().expect("it says which way");
        let through: u64 = path.queues.iter().map(|queue| queue.packets).sum();
        assert!(path.count > 0 && through > 0, "{path:?}");
        assert!(ended.out.contains(&rung.name), "{ended:#?}");
        is_as_strong_as_it_says(rung);
    }
    assert!(ended.out.contains("sender: "), "{ended:#?}");
    assert!(ended.out.contains("UNACCOUNTED 0"), "{ended:#?}");
    let page = fs::read_to_string(directory.path().join("page.html")).expect("it was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    // Nothing of it is fetched from anywhere.
    assert!(page.contains("Sent by "));
    for part in [
        "<script src",
        "<link rel=\"stylesheet\"",
        "@import",
        "<img src=\"http",
    ] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(
        fs::read_dir(&directory).expect("it is there").count(),
        2,
        "two files"
    );
}

/// Whether a rung's sender outran the receiver follows from the ledgers behind its rate.
fn is_as_strong_as_it_says(rung: &RungResult) {
    let sender = rung.sender.as_ref().expect("it says who sent");
    let sum = |count: fn(&mpps_host::Ledger) -> u64| -> u64 {
        rung.runs.sample_ledgers.iter().map(count).sum()
    };
    let (offered, received) = (
        sum(|ledger| ledger.offered) as f64,
        sum(|ledger| ledger.delivered + ledger.queued) as f64,
    );
    let said = sender.offered_per_received.expect("packets came");
    assert!((said - offered / received).abs() < 1e-9, "{sender:?}");
    assert_eq!(sender.outran, said >= 1.05, "{sender:?}");
    assert!(sender.usual, "{sender:?}");
}

fn a_sender_that_cannot_be_is_named() {
    // It fails before it opens its files, which no user could write there.
    let mut trains = mpps(&["lab", "--generator", "xdp", "--train", "4"]);
    let trains = run(trains.current_dir("/proc"));
    trains.fails(&["--train"]);
}

/// Frames that no socket counts are accounted for as all others; a rung whose queues they do not
/// reach is left out, and one about another sender keeps it.
fn the_generator_sends_where_it_reaches_the_queue() {
    let directory = directory();
    let arguments = [
        "--quick",
        "--all",
        "--only",
        "2,3,5,12",
        "--generator",
        "xdp",
    ];
    climb(&directory, &arguments).fine();
    let result = result(&directory);
    assert!(accounted_for(&result) > 0);
    for rung in &result.rungs {
        if let Some(why) = &rung.runs.skipped {
            assert!(why.contains("queue of its CPU's number"), "{why}");
            continue;
        }
        let sender = rung.sender.as_ref().expect("it says who sent");
        let (backend, train) = match rung.rung.as_str() {
            "12" => ("sendmmsg", Some(64)),
            _ => ("xdp", None),
        };
        assert_eq!((sender.backend.as_str(), sender.train), (backend, train));
    }
}

fn trains_that_were_asked_for_stay() {
    let directory = directory();
    climb(&directory, &["--quick", "--only", "2", "--train", "1"]).fine();
    let result = result(&directory);
    assert!(accounted_for(&result) > 0);
    let sender = result.rungs[0].sender.as_ref().expect("it says who sent");
    let said = (sender.name.as_str(), sender.train, sender.why.as_str());
    assert_eq!(said, ("sendmmsg, single datagrams", Some(1), "as asked"));
}

/// Datagrams of one flow all reach one socket of a group. The receiver reports that with a remedy.
fn a_group_that_one_flow_reaches_says_so() {
    let receive = |flows: &str| {
        let script = format!(
            "{mpps} recv 192.168.254.1:4321 4 1 --duration 3 & sleep 1; \
             nsenter --net=$MPPS_SENDER {mpps} send 192.168.254.1:4321 --count 6400 --rate 20k \
             --flows {flows} --source-port 2000 >/dev/null; wait",
            mpps = env!("CARGO_BIN_EXE_mpps"),
        );
        run(&mut mpps(&["lab", "--", "sh", "-c", &script])).fine()
    };
    let one = receive("1");
    one.shows(&["one socket of 4 got everything"]);
    assert!(one.out.contains("mpps send --flows 64"), "{one:#?}");
    let many = receive("64");
    assert!(!many.out.contains("received 0 in"), "{many:#?}");
    assert!(!many.out.contains("got everything"), "{many:#?}");
}

/// True if the drop reasons miss at most a tenth of the drops. Socket, namespace and sequence
/// numbers agree on those. It happens if soft interrupts deliver on a loaded machine;
/// docs/ledger.md.
fn misses_few(witness: &Witness) -> bool {
    falls_short(witness) && witness.witness.saturating_mul(10) >= witness.ledger.saturating_mul(9)
}

/// True of a witness that the drop reasons bear, and that has seen fewer drops than the ledger.
fn falls_short(witness: &Witness) -> bool {
    witness.source.starts_with("drop reason") && witness.witness < witness.ledger
}

fn rps_delivers_too() {
    let directory = directory();
    climb(&directory, &["--quick", "--only", "2", "--delivery", "rps"]).fine();
    // With RPS the tracepoint sometimes counts fewer drops than there were; docs/ledger.md.
    let errs = |_: &str, witness: &Witness| falls_short(witness);
    assert!(accounted_for_but(&result(&directory), errs) > 0);
}

/// The headline: at full overload, on every rung, not one datagram is unaccounted for.
fn every_rung_is_accounted_for_and_shows_its_point() {
    let directory = directory();
    let short = ["--seconds", "150ms", "--repeat", "1", "--all"];
    let ended = climb(&directory, &short);
    let result = result(&directory);
    assert!(result.complete, "{ended:#?}");
    let measured = result
        .rungs
        .iter()
        .filter(|rung| rung.runs.skipped.is_none());
    assert!(measured.count() >= 9, "{ended:#?}");
    // So does it where a socket polls its queue itself.
    let errs = |rung: &str, witness: &Witness| rung == "13" && falls_short(witness);
    let offered = accounted_for_but(&result, errs);
    assert!(offered > 1_000_000, "{offered} are no overload");
    let lost = |rung: &RungResult| {
        let ledger = rung.runs.ledger.as_ref();
        ledger.is_some_and(|ledger| ledger.losses.iter().any(|loss| loss.count > 0))
    };
    assert!(
        result.rungs.iter().any(lost),
        "nothing was lost: no overload"
    );
    assert_eq!(ended.code(), 0, "{ended:#?}");
    for rung in result
        .rungs
        .iter()
        .filter(|rung| rung.runs.skipped.is_some())
    {
        assert!(
            rung.runs.ledger.is_none() && rung.runs.mpps_median.is_none(),
            "{}",
            rung.rung
        );
    }
    ends_with_an_answer(&result, &ended);
    // An ordinary user has no queue that is tied to a CPU, and no generator.
    if mpps_trial::root().is_ok() {
        points::hold(&result);
    }
    only_rung_4a_has_the_queue_on_the_applications_cpu(&result);
}

/// The rungs beyond sockets are the last, and the last lines sum up the ladder.
fn ends_with_an_answer(result: &LabResult, ended: &Ended) {
    let last = &result.rungs[result.rungs.len() - 3..];
    let said = |rung: &RungResult| (rung.rung.clone(), rung.taken_by);
    let last: Vec<_> = last.iter().map(said).collect();
    let beyond = [
        ("16", TakenBy::Ring),
        ("17", TakenBy::Ring),
        ("18", TakenBy::Rule),
    ];
    assert_eq!(last, beyond.map(|(number, by)| (number.to_owned(), by)));
    let answer = result.answer.as_ref().expect("a whole climb has an answer");
    let most = answer.most.as_ref().expect("packets were received");
    let received = result
        .rungs
        .iter()
        .filter(|rung| rung.taken_by != TakenBy::Rule);
    assert!(
        received
            .filter_map(|rung| rung.runs.mpps_median)
            .all(|rate| rate <= most.mpps)
    );
    let rungs = result.rungs.iter();
    let measured = rungs.filter(|rung| rung.runs.skipped.is_none()).count();
    // The head, and below the rows the skipped, the ledgers, quick, here, next; six doubts at most.
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(
        (measured + 4..=measured + 12).contains(&lines.len()),
        "{ended:#?}"
    );
    let [.., here, next] = lines[..] else {
        panic!("{ended:#?}")
    };
    assert!(here.starts_with(" here: recvmmsg ") && next.starts_with(" next: mpps doctor "));
}

/// If the sender's CPU serves the queues, the application has its CPU to itself. That is the
/// default with two CPUs. The rung about sharing a CPU is the exception.
fn only_rung_4a_has_the_queue_on_the_applications_cpu(result: &LabResult) {
    if !result.delivery.starts_with("soft interrupts") {
        return;
    }
    // An ordinary user may not tie the queue's thread to a CPU, and the rung says so.
    let measured = result.rungs.iter().filter(|rung| rung.path.is_some());
    for rung in measured.filter(|rung| !rung.unplaced) {
        let application = |cpu: &&RungCpuBusy| cpu.roles.contains(&"application".into());
        let alone = rung
            .cpu_busy
            .iter()
            .filter(application)
            .all(|cpu| cpu.roles.len() == 1);
        let threaded = rung
            .path
            .as_ref()
            .is_some_and(|path| path.name.contains("threaded NAPI"));
        assert_eq!(
            alone,
            !["4a", "4e"].contains(&&*rung.rung),
            "rung {}: {:?}",
            rung.rung,
            rung.cpu_busy
        );
        assert_eq!(
            threaded,
            ["3", "4a", "4e"].contains(&&*rung.rung),
            "rung {}: {:?}",
            rung.rung,
            rung.path
        );
    }
}

fn a_train_that_the_path_cannot_carry_is_named() {
    let binary = env!("CARGO_BIN_EXE_mpps");
    let target = "192.168.254.30:9";
    let trains = [
        "lab", "--", binary, "send", target, "--size", "2000", "--gso", "2", "--count", "10",
    ];
    let ended = run(&mut mpps(&trains));
    ended.refused(&["--gso 2", "MTU"]);
}

fn interrupted_it_keeps_what_it_has() {
    let directory = directory();
    let mut command = mpps(&[
        "lab",
        "--seconds",
        "200ms",
        "--repeat",
        "1000",
        "--only",
        "1,2",
    ]);
    command
        .args(["--json=data.json", "--html", "page.html"])
        .current_dir(&directory);
    common::interrupted(&mut command, || {
        if !directory.path().join("data.json").exists() {
            return false;
        }
        let result = result(&directory);
        assert!(!result.complete);
        accounted_for(&result);
        result.rungs.iter().any(|rung| rung.runs.ledger.is_some())
    });
    let page = fs::read_to_string(directory.path().join("page.html")).expect("it was written");
    assert!(page.trim_end().ends_with("</html>"));
}

/// A rung that is printed is in the file, whatever comes after.
fn killed_it_keeps_what_it_has() {
    let directory = directory();
    let mut command = mpps(&["lab", "--quick", "--json=data.json"]);
    command
        .args(["--html", "page.html"])
        .current_dir(&directory);
    let mut running = Running::start(&mut command);
    running.line("one socket, unpinned");
    running.signal("KILL");
    drop(running);
    let result = result(&directory);
    assert!(!result.complete && result.quick);
    assert_eq!(result.rungs[0].rung, "1");
    assert!(result.rungs[0].runs.ledger.is_some());
    let is_measured = |rung: &&RungResult| rung.runs.skipped.is_none();
    assert!(result.rungs.iter().filter(is_measured).count() < 10);
    accounted_for(&result);
}

fn who_reads_no_more_ends_only_its_printing() {
    let directory = directory();
    let (reader, writer) = std::io::pipe().expect("a pipe can be had");
    drop(reader);
    let mut command = mpps(&["lab", "--json=data.json", "--html", "page.html"]);
    command.args(["--quick", "--only", "1"]).stdout(writer);
    let ended = command.current_dir(&directory).output().expect("it starts");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let result = result(&directory);
    assert!(result.complete && result.rungs.len() == 1);
    assert!(directory.path().join("page.html").is_file());
}

fn a_result_that_cannot_be_written_is_named() {
    let directory = directory();
    let mut command = mpps(&["lab", "--quick", "--only", "1", "--html", "/dev/full"]);
    let ended = run(command.current_dir(&directory));
    ended.refused(&["/dev/full"]);
}

fn an_ordinary_user_has_a_lab() {
    let directory = directory();
    let as_nobody = |arguments: &[&str]| common::as_nobody(directory.path(), arguments);
    let ended = as_nobody(&[
        "lab",
        "--quick",
        "--only",
        "1,2",
        "--json=data.json",
        "--html",
        "page.html",
    ]);
    let ended = ended.fine();
    let result = result(&directory);
    assert!(accounted_for(&result) > 0);
    // It names what it does without: pinned kernel threads, the chosen queue, drop reasons.
    let notes = result.notes.join("\n");
    for missing in ["queue", "drop reasons"] {
        assert!(notes.contains(missing), "{notes}");
    }
    assert!(!ended.err.contains("panicked"), "{ended:#?}");
    let generator = as_nobody(&["lab", "--quick", "--only", "1", "--generator", "xdp"]);
    generator.fails(&["--generator xdp"]);
    assert_eq!(as_nobody(&["lab", "--", "sh", "-c", "exit 7"]).code(), 7);
    let ended = as_nobody(&["recv", "127.0.0.1:0", "--duration", "50ms"]).fine();
    assert!(ended.out.contains("received 0 "), "{ended:#?}");
}

/// A container has a PID namespace, and sees no kernel thread.
fn a_pid_namespace_without_kernel_threads_has_a_lab() {
    const SAID: &str = "this PID namespace shows 0 of";
    let climb = ["--only", "2,4a", "--seconds", "0.1", "--repeat", "1"];
    let program = [env!("CARGO_BIN_EXE_mpps"), "lab", "--json=data.json"];
    // With a /proc of its own, and with that of the namespace around it.
    for contained in [&[][..], &["--mount-proc"], &["--pid"]] {
        let directory = directory();
        let mut command = Command::new("unshare");
        if !contained.is_empty() {
            command.args(["--pid", "--fork"]);
        }
        command.args(contained).args(program).args(climb);
        run(command.current_dir(&directory)).fine();
        let result = result(&directory);
        assert!(accounted_for(&result) > 0);
        let said = result.notes.iter().any(|note| note.contains(SAID));
        assert_eq!(said, !contained.is_empty(), "{:?}", result.notes);
        let shared = result.rungs.iter().find(|rung| rung.rung == "4a");
        let skipped = shared.and_then(|rung| rung.runs.skipped.as_deref());
        assert_eq!(skipped.is_some_and(|why| why.contains(SAID)), said);
    }
}

/// A container sees `/proc/sys` read-only. What the hosts say unasked would be counted with the run.
fn without_its_sysctls_it_is_silent() {
    let script =
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec \"$@\"";
    let directory = directory();
    let contained = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command
            .args([env!("CARGO_BIN_EXE_mpps"), "lab"])
            .args(arguments);
        run(command.current_dir(&directory)).fine()
    };
    let look = ["--", "cat", "/proc/net/igmp6", "/proc/net/snmp6"];
    // The groups of the addresses, which are reported, and the number of ICMPv6 messages sent.
    let groups = |told: &Ended| {
        let lines = told.out.lines().filter(|line| line.contains("mpps-rx"));
        lines.filter(|line| line.contains("01ff0000")).count()
    };
    let said = |told: &Ended| {
        let line = told
            .out
            .lines()
            .find_map(|line| line.strip_prefix("Icmp6OutMsgs"));
        line.and_then(|count| count.trim().parse::<u64>().ok())
    };
    let able = run(mpps(&["lab"]).args(look)).fine();
    // Without IPv6 there is nothing to be silent about.
    let is_v6 = groups(&able) > 0;
    let silent = contained(&look);
    assert_eq!(groups(&silent), 0, "{silent:#?}");
    assert!(!is_v6 || said(&silent) == Some(0), "{silent:#?}");

    let climb = ["--only", "2", "--seconds", "0.1", "--repeat", "1"];
    contained(&[&climb[..], &["--json=data.json", "--html", "page.html"]].concat());
    let result = result(&directory);
    let ledgers: Vec<_> = result.rungs[0].runs.ledgers().collect();
    assert!(!ledgers.is_empty());
    for ledger in ledgers {
        assert_eq!(ledger.unaccounted, 0, "{ledger}");
        assert!(
            ledger.losses.iter().all(|loss| loss.reason != "firewall"),
            "{ledger}"
        );
    }
    let notes = result.notes.join("\n");
    assert!(notes.contains("without neighbour discovery"), "{notes}");
}
