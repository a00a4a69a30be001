//! Queues: their number, their length, and how packets are spread over them.

use super::{Aim, JudgedStage, Risk, Tunables, TuneGoal, Wanted};
use crate::facts::rss::{MICROSOFT_KEY, hexadecimal};
use crate::setting::preflight;
use crate::setting::{Setting, Value};
use mpps_os::text::ShellWord;

/// Descriptors of a ring: 1 ms at 4 million packets a second; a longer ring leaves the cache before it
/// helps.
const RING: u32 = 4096;

/// A queue for each core of the card's node: two hyper-threads share what a queue needs most, and a
/// CPU of another node reads each packet from afar.
///
/// The kernel refuses fewer channels than a user's table names. So such a table comes first.
pub(super) fn channels(tunables: &Tunables, aim: Aim) -> JudgedStage {
    let Some(now) = tunables.channels().filter(|_| tunables.channels_max > 0) else {
        return Wanted::Impossible.because("its driver has no combined channels");
    };
    let cores = tunables.near_cores().len().max(1);
    let most = match aim.goal {
        TuneGoal::AfXdp => preflight::channels_for_af_xdp(&tunables.driver, tunables.channels_max),
        _ => tunables.channels_max,
    };
    let wanted = u32::try_from(cores).unwrap_or(u32::MAX).min(most.max(1));
    let node = match tunables.node {
        Some(node) => format!(" of node {node}, where it sits"),
        None => String::new(),
    };
    let limit = match most == tunables.channels_max {
        true => String::new(),
        false => format!(", and with more than {most} its driver refuses AF_XDP"),
    };
    let why = format!(
        "{now} of at most {} channels; there are {cores} cores{node}{limit}",
        tunables.channels_max
    );
    let mut settings = vec![(Setting::Channels, Value::number(wanted))];
    if let Some(Value::Numbers(table)) = tunables.value(&Setting::RssTable) {
        let of = |queues: u32| -> Vec<u32> { (0..queues).cycle().take(table.len()).collect() };
        if table.iter().any(|queue| *queue >= wanted) && *table != of(now.max(1)) {
            settings.insert(0, (Setting::RssTable, Value::Numbers(of(wanted))));
        }
    }
    Wanted::Settings(settings).because(why)
}

/// Programs that take their own rings' sizes from the card's want a power of two, which is what the kernel
/// allows there (`xsk_init_queue`).
pub(super) fn rings(tunables: &Tunables, aim: Aim) -> JudgedStage {
    let Some(now) = tunables.number(&Setting::RxRing) else {
        return Wanted::Impossible.because("its driver does not show its rings");
    };
    // A longer ring was set by the administrator, and stays.
    let mut wanted = RING.min(tunables.rx_ring_max);
    if aim.goal == TuneGoal::AfXdp && wanted > 0 {
        wanted = 1 << wanted.ilog2();
    }
    let wanted = wanted.max(now);
    let why = format!(
        "{now} of at most {} descriptors; {RING} last 1 ms at 4 Mpps, a CPU's usual pause",
        tunables.rx_ring_max
    );
    Wanted::Settings(vec![(Setting::RxRing, Value::number(wanted))]).because(why)
}

pub(super) fn fields(tunables: &Tunables, aim: Aim) -> JudgedStage {
    if tunables.queues() < 2 {
        return Wanted::NotNeeded.because("it has one receive queue");
    }
    if aim.goal == TuneGoal::Tcp {
        return Wanted::NotNeeded.because("drivers hash the ports of TCP by themselves");
    }
    let mut kinds = Setting::fields_of_udp().to_vec();
    kinds.retain(|kind| tunables.value(kind).is_some());
    if kinds.is_empty() {
        return Wanted::Impossible.because("its driver does not show which fields it hashes");
    }
    let sdfn = || Value::Word("sdfn".to_owned());
    let wanted = kinds.into_iter().map(|kind| (kind, sdfn()));
    let why =
        "without the ports all flows between two hosts come by one queue; with them the later \
               fragments of a datagram come by another queue than its first"
            .to_owned();
    Wanted::Settings(wanted.collect()).because(why)
}

/// A Toeplitz hash with a key of zeros is 0 for every flow. `mpps steer` knows the flows, and finds
/// the other key that spreads them best.
pub(super) fn key(tunables: &Tunables, _: Aim) -> JudgedStage {
    let Some(Value::Word(now)) = tunables.value(&Setting::RssKey) else {
        let why = "its driver does not show the key of its hash";
        return Wanted::Impossible.because(why);
    };
    if tunables.queues() < 2 {
        return Wanted::NotNeeded.because("it has one receive queue");
    }
    let bytes = now.split(':');
    let length = bytes.clone().count();
    if bytes.clone().any(|byte| byte != "00") {
        let why = format!(
            "its key of {length} bytes is not all zeros; zeros would give all flows one hash"
        );
        return Wanted::Settings(Vec::new()).because(why);
    }
    let key: Vec<u8> = MICROSOFT_KEY.into_iter().cycle().take(length).collect();
    let key = Value::Word(hexadecimal(&key));
    let why = "its key is all zeros, which gives all flows one hash; this is the key of Microsoft's \
               verification suite";
    Wanted::Settings(vec![(Setting::RssKey, key)]).because(why)
}

pub(super) fn table(tunables: &Tunables, _: Aim) -> JudgedStage {
    let Some(Value::Numbers(now)) = tunables.value(&Setting::RssTable) else {
        return Wanted::Impossible.because("its driver has no RSS table");
    };
    let used = now.iter().collect::<std::collections::BTreeSet<_>>().len();
    let queues = tunables.queues();
    if queues < 2 || now.is_empty() {
        return Wanted::NotNeeded.because("it has one receive queue");
    }
    let why = format!("its table sends packets to {used} of {queues} queues");
    if used == queues as usize {
        return Wanted::Settings(Vec::new()).because(why);
    }
    let even: Vec<u32> = (0..queues).cycle().take(now.len()).collect();
    Wanted::Settings(vec![(Setting::RssTable, Value::Numbers(even))]).because(why)
}

/// A rule and a table without the queue live as long as the program that reads the queue, which makes
/// and removes them itself.
pub(super) fn rules(tunables: &Tunables, aim: Aim) -> JudgedStage {
    let no = |why: &str| Wanted::NotNeeded.because(why);
    if aim.goal != TuneGoal::AfXdp {
        return no("the hash spreads packets over all queues, and sockets read all");
    }
    if tunables.queues() < 2 {
        return no("it has one receive queue");
    }
    let port = aim.port.map_or("PORT".to_owned(), |port| port.to_string());
    let mut command = format!("mpps recv ADDR:{port} --backend af_xdp --queue-carve-out");
    let mut why =
        "a queue with only these packets leaves the others to the kernel; recv makes that and \
                   puts it back"
            .to_owned();
    if tunables.value(&Setting::Filters).is_none() {
        command += &format!(" --flow SOURCE:PORT-ADDR:{port}");
        why += "; its driver takes no rules, so that the flows are to be named";
    }
    Wanted::ByHand(vec![command], &[]).because(why)
}

pub(super) fn functions(tunables: &Tunables, aim: Aim) -> JudgedStage {
    let no = |why: &str| Wanted::NotNeeded.because(why);
    if tunables.functions_max == 0 {
        return Wanted::Impossible.because("it has no virtual functions");
    }
    if aim.goal != TuneGoal::AfXdp {
        return no("only who takes a whole interface from the kernel needs one of its own");
    }
    let why = "AF_XDP on a virtual function leaves the interface itself to the kernel; by hand, because igb \
               and ixgbe then choose the number of queues anew, and again when it goes";
    let name = ShellWord::new(&tunables.interface);
    let command = format!("echo 1 > /sys/class/net/{name}/device/sriov_numvfs");
    let risks = &[Risk::LinkBounce, Risk::Loss, Risk::Reordering];
    Wanted::ByHand(vec![command], risks).because(why)
}
