//! `mpps tune`: its plans, and that its changes are undone afterwards, however it ended.

mod guard;
mod prove;
mod tracking;

use crate::common::{Ended, Entered, Running, mpps, run, words};
use mpps_host::setting::tune::{Tunables, TuneGoal, TunePlan};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link};
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;

pub(crate) fn trials() -> Vec<Trial> {
    let parts = [
        of_plans(),
        guard::trials(),
        prove::trials(),
        tracking::trials(),
    ];
    parts.into_iter().flatten().collect()
}

fn of_plans() -> Vec<Trial> {
    trials![
        waits(Need::Root):
            a_plan_is_told_and_changes_nothing,
            what_is_applied_is_kept_and_put_back,
            what_is_not_confirmed_is_put_back,
            what_is_confirmed_is_kept,
            what_somebody_changed_is_left,
            what_somebody_changed_is_put_back_if_that_is_told,
            two_lock_each_other_out,
            what_may_help_is_changed_by_its_name,
            what_is_refused_is_told,
            what_nobody_reads_is_put_back,
            bad_input_changes_nothing,
            a_full_run_changes_nothing;
        waits(Need::Root, Need::Program("strace", "strace")):
            a_run_killed_before_any_of_its_calls_is_undone;
        waits(Need::Root, Need::Program("setpriv", "util-linux")):
            a_plan_needs_no_rights,
            what_cannot_be_written_is_told_and_changes_nothing;
        waits(Need::Root, Need::Program("ip", "iproute2")):
            an_interface_with_another_name_stays_tuned,
            the_link_of_the_session_and_of_ipv6_is_not_cut,
            the_link_of_the_default_route_is_not_cut;
        waits(Need::Root, Need::Program("unshare", "util-linux")):
            a_journal_that_cannot_be_read_is_told;
        waits(Need::Root, Need::Program("ethtool", "ethtool")):
            a_queue_that_has_gone_is_not_waited_for;
    ]
}

/// A network namespace with an end of a veth, `near`, that has one queue and no GRO.
struct Place {
    near: NetNamespace,
    far: NetNamespace,
    /// The first state.
    before: Tunables,
}

impl Place {
    fn new() -> Self {
        Self::with_queues(1)
    }

    fn with_queues(queues: u16) -> Self {
        let made = || NetNamespace::new().expect("root has namespaces");
        let (near, far) = (made(), made());
        let create = || -> mpps_os::CallResult<()> {
            link::create_veth("near", queues, "far", queues, far.as_fd())?;
            link::set_up(link::index("near")?)
        };
        near.within(create).expect("a pair");
        let before = state(&near);
        Self { near, far, before }
    }

    /// Everything is as it was at first.
    #[track_caller]
    fn is_as_before(&self) {
        assert_eq!(self.state(), self.before);
    }

    /// Gives both ends an address.
    fn meet(&self) {
        for (host, name, own) in [(&self.near, "near", 1), (&self.far, "far", 2)] {
            let address = || -> mpps_os::CallResult<()> {
                let index = link::index(name)?;
                link::set_up(index)?;
                address::add(index, Ipv4Addr::new(10, 9, 0, own).into(), 24)
            };
            host.within(address).expect("it is up");
        }
    }

    fn state(&self) -> Tunables {
        state(&self.near)
    }

    fn tune(&self, line: &str) -> Ended {
        let command = format!("tune {line}");
        let command = command.split_whitespace().collect::<Vec<_>>();
        self.near.within(|| run(&mut mpps(&command)))
    }

    /// The result if it is killed before the call number `which` of this kind.
    fn killed(&self, line: &str, call: &str, which: usize) -> Ended {
        let mut command = Command::new("strace");
        command.args(["-f", "--quiet=all", "-o", "/dev/null"]);
        command.arg(format!("--trace={call}"));
        command.arg(format!("--inject={call}:signal=KILL:when={which}"));
        command
            .args([env!("CARGO_BIN_EXE_mpps"), "tune"])
            .args(line.split(' '));
        self.near.within(|| run(&mut command))
    }

    /// Files of the interface's namespace that are left in the folder of journals.
    fn journals(&self) -> Vec<String> {
        let files = fs::read_dir("/run/mpps").into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let inode = self.near.inode().to_string();
        names.filter(|name| name.contains(&inode)).collect()
    }

    fn start(&self, line: &str) -> Running {
        let command = format!("tune {line}");
        let command = words(&command);
        self.near.within(|| Running::start(&mut mpps(&command)))
    }

    fn ip(&self, line: &str) {
        let set = || run(Command::new("ip").args(line.split(' ')));
        self.near.within(set).fine();
    }

    fn set(&self, name: &str, value: &str) {
        let write = || {
            let sysfs = mpps_os::sysfs::Sysfs::mount()?;
            sysfs.write(&format!("class/net/near/{name}"), value)
        };
        self.near.within(write).expect("it can be set");
    }
}

/// Applies one stage.
const DEFER: &str = "apply near --only napi-defer --for af_xdp";

/// All that `mpps tune` might change.
fn state(near: &NetNamespace) -> Tunables {
    let read = near.within(|| Tunables::read("near", None));
    read.expect("it can be read")
}

fn a_plan_is_told_and_changes_nothing() {
    let place = Place::new();
    let told = place.tune("plan near").fine();
    for words in [
        "near (veth) for UDP: ",
        "source: ",
        "rx-gro off -> on",
        "ethtool -K near rx-gro on",
        "rings         impossible: ",
    ] {
        assert!(told.out.contains(words), "{words}: {told:#?}");
    }
    let told = place.tune("plan near --for af_xdp --json").fine();
    let plan: Value = serde_json::from_str(&told.out).expect("it is JSON");
    assert_eq!(plan["schema"], "mpps.tune.v1");
    let steps = plan["steps"].as_array().expect("a list");
    let deferred = steps.iter().find(|step| step["stage"] == "napi-defer");
    let deferred = deferred.expect("it is one of the stages");
    assert_eq!(deferred["verdict"], "change");
    assert_eq!(
        deferred["edits"][0]["command"],
        "echo 200000 > /sys/class/net/near/gro_flush_timeout"
    );
    place.is_as_before();
    let facts = serde_json::from_value(plan["facts"].clone());
    let facts: Tunables = facts.expect("they are what was read");
    assert_eq!(facts, place.before);
    let again = TunePlan::new(&facts, TuneGoal::AfXdp, &[]);
    let again = again.steps.iter().map(|step| step.why.as_str());
    assert!(again.eq(steps.iter().filter_map(|step| step["why"].as_str())));
}

fn what_is_applied_is_kept_and_put_back() {
    let place = Place::new();
    let applied = place.tune("apply near --for af_xdp").fine();
    assert!(
        applied
            .out
            .contains("changed: gro_flush_timeout 0 -> 200000"),
        "{applied:#?}"
    );
    let after = place.state();
    assert_ne!(after, place.before);
    // A plan finds nothing to do, and one more run is refused.
    let plan = place.tune("plan near --for af_xdp").fine();
    assert!(plan.out.contains("nothing to change"), "{plan:#?}");
    let again = place.tune("apply near --for af_xdp").fine();
    assert!(again.out.contains("nothing to change"), "{again:#?}");
    let other = place.tune("apply near");
    other.fails(&["`mpps tune undo`"]);
    assert_eq!(place.state(), after);
    // An undo of leftovers does not touch this.
    let undo = || run(&mut mpps(&["undo"]));
    let left = place.near.within(undo).fine();
    assert!(left.out.contains("to stay"), "{left:#?}");
    let status = place.tune("status").fine();
    status.shows(&["near, tuned for AF_XDP: stays"]);
    let undone = place.tune("undo near").fine();
    undone.shows(&["undone: gro_flush_timeout"]);
    place.is_as_before();
    let status = place.tune("status near").fine();
    assert!(status.out.contains("not tuned"), "{status:#?}");
}

fn what_is_not_confirmed_is_put_back() {
    let place = Place::new();
    let ended = place.tune("apply near --confirm-within 1s");
    assert_eq!(ended.code(), 130, "{ended:#?}");
    for words in [
        "changed: rx-gro off -> on",
        "put back in 1 s",
        "put back: undone: rx-gro",
    ] {
        assert!(ended.out.contains(words), "{words}: {ended:#?}");
    }
    place.is_as_before();
    // A change is also undone if a signal ends the wait.
    let mut waiting = place.start("apply near --confirm-within 60m");
    waiting.line("put back in");
    assert_ne!(place.state(), place.before);
    waiting.signal("HUP");
    let ended = waiting.end();
    assert_eq!(ended.code(), 130, "{ended:#?}");
    place.is_as_before();
}

fn what_is_confirmed_is_kept() {
    let place = Place::new();
    let nothing = place.tune("confirm");
    assert_eq!(nothing.code(), 2, "{nothing:#?}");
    let mut waiting = place.start("apply near --confirm-within 60m");
    waiting.line("put back in");
    let confirmed = place.tune("confirm near").fine();
    assert!(confirmed.out.contains("kept"), "{confirmed:#?}");
    let kept = waiting.end().fine();
    assert!(kept.out.contains("kept until"), "{kept:#?}");
    assert_ne!(place.state(), place.before);
    // Where the list of changes is lost, all are undone.
    let mut undo = Command::new("sh");
    undo.args(["-c", "exec \"$0\" tune undo >/dev/full"]);
    undo.arg(env!("CARGO_BIN_EXE_mpps"));
    let undone = place.near.within(|| run(&mut undo));
    let said = undone.err.contains("cannot write standard output");
    assert_eq!((undone.code(), said), (2, true), "{undone:#?}");
    place.is_as_before();
}

/// A queue goes away after its file was changed. Undo must still finish.
fn a_queue_that_has_gone_is_not_waited_for() {
    // More queues than cores, so that each is to leave its packets on its CPU.
    let cpus = thread::available_parallelism().expect("some");
    let last = u16::try_from(cpus.get()).expect("fewer");
    let place = Place::with_queues(last + 1);
    let file = format!("queues/rx-{last}/rps_cpus");
    place.set(&file, "1");
    let applied = place.tune("apply near --only rps").fine();
    assert!(applied.out.contains(&file), "{applied:#?}");
    let mut fewer = Command::new("ethtool");
    fewer.args(["-L", "near", "rx", "1", "tx", "1"]);
    place.near.within(|| run(&mut fewer)).fine();
    let undone = place.tune("undo near").fine();
    assert!(undone.out.contains("nothing to undo"), "{undone:#?}");
    let status = place.tune("status near").fine();
    assert!(status.out.contains("not tuned"), "{status:#?}");
}

/// `apply` is killed before each of its writing calls except ioctl(2), and `undo` before each
/// ioctl(2). Their changes are then undone, and none of their files is left.
fn a_run_killed_before_any_of_its_calls_is_undone() {
    const SIGKILL: i32 = 9;
    const APPLY: &str = "apply near";
    const UNDO: &str = "undo near";
    const WRITES: [&str; 5] = ["write", "fsync", "sendto", "renameat2", "unlinkat"];
    let place = Place::new();
    place.tune(APPLY).fine();
    let after = place.state();
    place.tune(UNDO).fine();
    // By ioctl(2) a feature is set; an apply also asks by it, several hundred times.
    let ways = [(APPLY, &WRITES[..]), (UNDO, &WRITES), (UNDO, &["ioctl"])];
    for (words, calls) in ways {
        let (mut killed, mut halfway) = (0, 0);
        for call in calls {
            for which in 1.. {
                if words == UNDO {
                    place.tune(APPLY).fine();
                }
                let ended = place.killed(words, call, which);
                let left = place.state();
                let undo = || run(&mut mpps(&["undo"]));
                let undone = place.near.within(undo).fine();
                place.tune(UNDO);
                assert_eq!(
                    place.state(),
                    place.before,
                    "{words:?}, {call} {which}: {undone:#?}"
                );
                assert_eq!(place.journals(), [""; 0], "{words:?}, {call} {which}");
                if ended.status.success() {
                    break;
                }
                assert_eq!(ended.status.signal(), Some(SIGKILL), "{ended:#?}");
                killed += 1;
                halfway += usize::from(left != place.before && left != after);
            }
        }
        assert!(
            halfway > 0,
            "{words:?} {calls:?}: {killed} killed, none halfway"
        );
    }
}

fn what_somebody_changed_is_left() {
    let place = Place::new();
    place.tune(DEFER).fine();
    place.set("gro_flush_timeout", "1234");
    let status = place.tune("status near");
    assert_eq!(status.code(), 1, "{status:#?}");
    status.shows(&["not any more, it is 1234"]);
    let undone = place.tune("undo near");
    assert_eq!(undone.code(), 1, "{undone:#?}");
    let files = place.state().values;
    let value = |name: &str| {
        let found = files
            .iter()
            .find(|(setting, _)| format!("{setting:?}").contains(name));
        format!("{:?}", found.expect("it is there").1)
    };
    assert_eq!(value("gro_flush_timeout"), "Number(1234)");
    assert_eq!(value("napi_defer_hard_irqs"), "Number(0)");
}

fn an_interface_with_another_name_stays_tuned() {
    let place = Place::new();
    place.tune(DEFER).fine();
    place.ip("link set near down name other");
    let status = place.tune("status other").fine();
    status.shows(&["gro_flush_timeout 0 -> 200000"]);
    assert!(!status.out.contains("not any more"), "{status:#?}");
    let undone = place.tune("undo other").fine();
    undone.shows(&["undone: gro_flush_timeout"]);
    place.ip("link set other down name near");
    place.is_as_before();
}

fn what_somebody_changed_is_put_back_if_that_is_told() {
    let place = Place::new();
    place.tune(DEFER).fine();
    place.set("gro_flush_timeout", "1234");
    // What is left stays on record.
    let left = place.tune("undo near");
    assert!(left.out.contains("left as it is: gro_flush"), "{left:#?}");
    let undone = place.tune("undo near --force").fine();
    undone.shows(&["undone: gro_flush_timeout"]);
    place.is_as_before();
    let status = place.tune("status near").fine();
    assert!(status.out.contains("not tuned"), "{status:#?}");
}

/// While one apply runs, no other begins, and no undo touches its changes.
fn two_lock_each_other_out() {
    let place = Place::new();
    let mut waiting = place.start("apply near --confirm-within 60m");
    waiting.line("put back in");
    let during = place.state();
    assert_ne!(during, place.before);
    for words in [
        // There is nothing left to change, and yet it may all go again.
        "apply near",
        "apply near --only threaded-napi",
        "prove near --port 4321 --only threaded-napi",
        "undo near",
        "undo near --force",
    ] {
        let refused = place.tune(words);
        assert_eq!(refused.code(), 2, "{words:?}: {refused:#?}");
        assert_eq!(place.state(), during, "{words:?}");
    }
    waiting.signal("HUP");
    waiting.end();
    place.is_as_before();
}

/// A user without rights gets the same plan as root.
fn a_plan_needs_no_rights() {
    let place = Place::new();
    let told = |command: &mut Command| {
        let ended = place.near.within(|| run(command));
        let plan: Value = serde_json::from_str(&ended.fine().out).expect("it is JSON");
        plan["steps"].clone()
    };
    // The user `nobody` may not read the folder of the build.
    let program = tempfile::tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(program.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let copy = program.path().join("mpps");
    fs::copy(env!("CARGO_BIN_EXE_mpps"), &copy).expect("it can be read");
    let words = ["tune", "plan", "near", "--json"];
    // A sysfs at /sys shows the network namespace of the process that mounted it.
    let as_nobody = |before: &str| {
        let script = format!(
            "{before} exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all {} {}",
            copy.display(),
            words.join(" ")
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        command
    };
    let of_nobody = told(&mut as_nobody("mount -t sysfs none /sys &&"));
    assert_eq!(of_nobody, told(&mut mpps(&words)));
    // Without its files an interface seems to have no settings.
    let blind = place.near.within(|| run(&mut as_nobody("")));
    let said = blind.err.contains("/sys is not of this network namespace");
    assert_eq!((blind.code(), said), (2, true), "{blind:#?}");
    assert!(!blind.out.contains("impossible"), "{blind:#?}");
}

fn what_may_help_is_changed_by_its_name() {
    let place = Place::new();
    let plan = place.tune("plan near --port 53").fine();
    for words in [
        "may help or harm",
        "threaded 0 -> 1",
        "by hand",
        "mpps recv ADDR:53",
    ] {
        assert!(plan.out.contains(words), "{words}: {plan:#?}");
    }
    let applied = place.tune("apply near").fine();
    assert!(!applied.out.contains("threaded"), "{applied:#?}");
    place.tune("undo").fine();
    // The driver has queues that could have threads once it merges packets.
    let named = place.tune("apply near --only offloads,threaded-napi");
    assert!(
        named.fine().out.contains("changed: threaded 0 -> 1"),
        "it was named"
    );
    place.tune("undo").fine();
    place.is_as_before();
}

/// Without GRO a veth has no work for a thread, and the kernel refuses one. Then all is undone; on
/// request, the rest is applied.
fn what_is_refused_is_told() {
    const REFUSED: &str = "write /sys/class/net/near/threaded: Operation not supported";
    let place = Place::new();
    let apply = "apply near --only napi-defer,threaded-napi --for af_xdp";
    let ended = place.tune(apply);
    ended.fails(&[REFUSED]);
    ended.shows(&["put back: undone: gro_flush_timeout"]);
    place.is_as_before();
    let ended = place.tune(&format!("{apply} --keep-going"));
    assert_eq!(ended.code(), 1, "{ended:#?}");
    assert!(
        ended
            .out
            .contains(&format!("refused: threaded 0 -> 1: {REFUSED}")),
        "{ended:#?}"
    );
    ended.shows(&["changed: gro_flush_timeout 0 -> 200000"]);
    assert_ne!(place.state(), place.before);
    place.tune("undo near").fine();
    place.is_as_before();
}

fn what_nobody_reads_is_put_back() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let apply = || {
        let mut command = mpps(&["tune", "apply", "near"]);
        command.stdout(writer).output().expect("it runs")
    };
    let ended = place.near.within(apply);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    place.is_as_before();
}

fn bad_input_changes_nothing() {
    let place = Place::new();
    for (words, said) in [
        ("apply nosuch0", "nosuch0"),
        ("plan lo", "name another interface"),
        ("plan", "name one"),
        ("apply near --only ring", "there are channels, rings"),
        ("apply near --for quic", "--for"),
        ("apply near --confirm-within soon", "--confirm-within"),
        ("", "Usage"),
    ] {
        let ended = place.tune(words);
        assert_eq!(ended.code(), 2, "{words:?}: {ended:#?}");
        assert!(ended.err.contains(said), "{words:?}: {ended:#?}");
    }
    place.is_as_before();
}

/// The change of such a journal is not undone. Other tests that look for journals meanwhile do not
/// see this one.
fn a_journal_that_cannot_be_read_is_told() {
    for (content, why) in [
        ("echo { >$file", "/run/mpps/tune-1-1.json: "),
        (
            "echo {} >$file; chown 65534 $file",
            "it belongs to user 65534, not to 0",
        ),
    ] {
        let folder = "mount -t tmpfs none /run && mkdir /run/mpps";
        let mpps = env!("CARGO_BIN_EXE_mpps");
        let script = format!(
            "file=/run/mpps/tune-1-1.json; {{ {folder} && {content}; }} || exit 9
            {mpps} tune undo; status=$?; ls /run/mpps; exit $status"
        );
        let mut command = Command::new("unshare");
        let ended = run(command.args(["--mount", "sh", "-c", &script]));
        ended.fails(&[why]);
        assert!(ended.out.contains("tune-1-1.json"), "{ended:#?}");
    }
}

/// Where the journal finds no room nothing is changed, and no half of it stays.
fn a_full_run_changes_nothing() {
    let place = Place::new();
    let mpps = env!("CARGO_BIN_EXE_mpps");
    let script = format!(
        "mount -t tmpfs -o size=16k none /run && mkdir -m 700 /run/mpps || exit 9
        dd if=/dev/zero of=/run/full 2>/dev/null
        {mpps} tune apply near; status=$?; ls -A /run/mpps; exit $status"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let ended = place.near.within(|| run(&mut command));
    ended.fails(&["No space left on device"]);
    assert_eq!(ended.out, "", "{ended:#?}");
    place.is_as_before();
}

/// `apply` is refused to the user `nobody`. It is also refused if no journal can be written, or if
/// sysfs is read-only. It finds that only after it has made the first of two settings by ioctl(2).
fn what_cannot_be_written_is_told_and_changes_nothing() {
    const NOBODY: &str = "mount -t sysfs none /sys && exec setpriv --reuid 65534 --regid 65534 \
         --clear-groups --bounding-set=-all";
    const NO_PLACE: &str = "for at in /run /dev/shm; do
        mount --bind $at $at && mount -o remount,ro,bind $at || exit 9; done; exec";
    const READ_ONLY: &str = "mount -t sysfs none /mnt && mount -o remount,ro /mnt || exit 9; exec";
    let place = Place::new();
    // The user `nobody` may not read the folder of the build.
    let program = tempfile::tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(program.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let mpps = program.path().join("mpps");
    fs::copy(env!("CARGO_BIN_EXE_mpps"), &mpps).expect("it can be read");
    for (how, said) in [
        (NOBODY, "run as root"),
        (NO_PLACE, "Read-only file system"),
        (READ_ONLY, "rps_cpus: Read-only file system"),
    ] {
        let script = format!("{how} {} tune apply near", mpps.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        let ended = place.near.within(|| run(&mut command));
        ended.fails(&[said]);
        place.is_as_before();
        assert_eq!(place.journals(), [""; 0]);
    }
}

/// The offloads of a veth take no link down, but a stage that may is not made unasked.
/// By an IPv6 default route beside an IPv4 one elsewhere, and by the session's address, likewise.
fn the_link_of_the_session_and_of_ipv6_is_not_cut() {
    let place = Place::new();
    place.ip("address add 10.9.0.2/24 dev near");
    let refused = |session: Option<&str>| {
        let mut command = mpps(&["tune", "apply", "near"]);
        command.env_remove("SSH_CONNECTION");
        command.envs(session.map(|session| ("SSH_CONNECTION", session)));
        let ended = place.near.within(|| run(&mut command));
        assert_eq!(ended.code(), 2, "{ended:#?}");
        ended.err
    };
    let before = place.state();
    let said = refused(Some("10.9.0.77 40000 10.9.0.2 22"));
    assert!(said.contains("the ssh session came"), "{said}");
    place.ip("link add other type veth peer name another");
    place.ip("link set another up");
    place.ip("address add 10.8.0.2/24 dev other");
    place.ip("link set other up");
    place.ip("route add default via 10.8.0.1");
    place.ip("-6 address add 2001:db8:9::2/64 dev near nodad");
    place.ip("-6 route add default via 2001:db8:9::1 dev near");
    let said = refused(None);
    assert!(said.contains("the default route goes"), "{said}");
    assert_eq!(place.state(), before);
}

fn the_link_of_the_default_route_is_not_cut() {
    let place = Place::new();
    place.ip("address add 10.9.0.2/24 dev near");
    place.ip("route add default via 10.9.0.1");
    let refused = place.tune("apply");
    assert_eq!(refused.code(), 2, "{refused:#?}");
    for words in [
        "the default route goes",
        "--allow-link-bounce",
        "--confirm-within",
    ] {
        assert!(refused.err.contains(words), "{refused:#?}");
    }
    place.is_as_before();
    place.tune("apply --allow-link-bounce").fine();
    place.tune("undo near").fine();
    place.is_as_before();
}
