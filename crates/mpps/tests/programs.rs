//! This kernel accepts every BPF program of ours. Each release has a verifier that knows less, or
//! other things. A program is only left out if a kernel of this release lacks its feature. The
//! reason names the feature.

use crate::common::Entered;
use mpps_host::{DropFilter, DropProbe};
use mpps_io::parts::{FlowCounters, FlowFilter};
use mpps_io::{
    Attach, Destination, Fanout, Rx, RxConfig, Stop, TxConfig, TxTask, TxWorker, backend,
};
use mpps_lab::{EarlyDrop, Lab, LabConfig, steering};
use mpps_os::bpf::{PerCpuMapKind, Program, ProgramKind, XDP_HAS_FRAGMENTS, XskMap};
use mpps_trial::{Need, Trial};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

/// A program: its name, the first release of Linux that has its feature, the feature, and its
/// loading.
type Row = (&'static str, (u32, u32), &'static str, fn());

/// The oldest release that is supported at all.
const OLDEST: (u32, u32) = (5, 10);

pub(crate) fn trials() -> Vec<Trial> {
    let trials = PROGRAMS.iter().map(|(name, since, feature, load)| {
        let is_new = move || match release() < *since {
            false => Ok(()),
            true => Err(format!(
                "{feature}: Linux {}.{}, and this is older",
                since.0, since.1
            )),
        };
        let trial = Trial::waits(format!("programs::{name}"), *load);
        trial.needs(Need::Root).needs(Need::probe(is_new))
    });
    trials.collect()
}

const PROGRAMS: &[Row] = &[
    ("flow_redirect", OLDEST, "", || redirect(false)),
    (
        "flow_redirect_fragments",
        (5, 18),
        "XDP for frames in several buffers",
        || redirect(true),
    ),
    ("flow_drop", OLDEST, "", flow_drop),
    ("af_xdp_native", OLDEST, "", || af_xdp(Attach::Native)),
    ("af_xdp_generic", OLDEST, "", || af_xdp(Attach::Generic)),
    ("packet_mmap_fanout", OLDEST, "", packet_mmap_fanout),
    ("packet_mmap_take", (6, 6), "TCX", packet_mmap_take),
    ("recvmmsg_steer", OLDEST, "", recvmmsg_steer),
    ("xdp_drop_parsed", OLDEST, "", || {
        early_drop(EarlyDrop::XdpParsed);
    }),
    ("xdp_drop_read", OLDEST, "", || {
        early_drop(EarlyDrop::XdpRead);
    }),
    ("xdp_drop_untouched", OLDEST, "", || {
        early_drop(EarlyDrop::XdpUntouched);
    }),
    (
        "drop_probe",
        (5, 17),
        "drop reasons at the tracepoint kfree_skb",
        drop_probe,
    ),
    ("xdp_generator", (6, 1), "bpf_ktime_get_tai_ns", generator),
    ("steering", (6, 6), "TCX", steer),
];

const PORT: u16 = 4321;

/// The running kernel's release, as far as it is two numbers.
fn release() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    number()
        .zip(number())
        .unwrap_or_else(|| panic!("a release is two numbers at least: {text}"))
}

/// An address of each version, every address of each, and every frame.
fn filters() -> Vec<FlowFilter> {
    let addresses: [IpAddr; 4] = [
        [192, 0, 2, 1].into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv6Addr::UNSPECIFIED.into(),
    ];
    let of = |address| FlowFilter::new(SocketAddr::new(address, PORT));
    let mut filters = addresses.map(of).to_vec();
    let ports = |address, ports| Destination { address, ports };
    let [v4, v6, ..] = addresses;
    filters.push(
        FlowFilter::new(ports(v4, 1..=9))
            .or(ports(v6, PORT..=PORT + 9))
            .or(ports(v4, PORT..=PORT))
            .or(ports(v6, 1..=9)),
    );
    filters.push(FlowFilter::everything());
    filters
}

fn counters() -> FlowCounters {
    FlowCounters::create(PerCpuMapKind::Array, "counters", 1).expect("root has maps")
}

fn redirect(fragments: bool) {
    let sockets = XskMap::create("sockets", 4).expect("root has maps");
    let flags = if fragments { XDP_HAS_FRAGMENTS } else { 0 };
    for filter in filters() {
        let counters = counters();
        let program = filter.redirect(sockets.as_fd(), counters.as_fd(), fragments);
        let program = program.expect("it assembles");
        Program::load_with_flags(ProgramKind::Xdp, "redirect", &program, flags)
            .unwrap_or_else(|error| panic!("{filter:?}: {error}"));
    }
}

fn flow_drop() {
    for filter in filters() {
        let counters = counters();
        let program = filter.tcx_drop(counters.as_fd()).expect("it assembles");
        Program::load(ProgramKind::Classifier, "drop", &program)
            .unwrap_or_else(|error| panic!("{filter:?}: {error}"));
    }
}

fn lab() -> Lab {
    Lab::new(&LabConfig::default()).expect("root has a lab")
}

/// The receiving host's first address of each version.
fn addresses(lab: &Lab) -> [SocketAddr; 2] {
    let host = lab.receiver();
    let both: [IpAddr; 2] = [host.v4()[0].into(), host.v6()[0].into()];
    both.map(|address| SocketAddr::new(address, PORT))
}

/// Opens a receiver at each address of the lab, one after the other.
fn receivers(name: &str, configure: impl Fn(&mut RxConfig) + Sync, then: impl Fn(&dyn Rx) + Sync) {
    let lab = lab();
    for address in addresses(&lab) {
        let mut config = RxConfig::new(address);
        configure(&mut config);
        let open = || {
            let rx = backend::find(name).and_then(|backend| backend.open_rx(&config));
            then(&*rx.unwrap_or_else(|error| panic!("{address}: {error}")));
        };
        lab.receiver().within(open);
    }
}

fn af_xdp(attach: Attach) {
    receivers(
        "af_xdp",
        |config| config.ring.attach = Some(attach),
        |rx| {
            let granted = rx
                .caps()
                .mode
                .properties
                .contains(&mpps_io::Property::Native);
            assert_eq!(granted, attach == Attach::Native, "{}", rx.caps().mode);
        },
    );
}

fn packet_mmap_fanout() {
    receivers(
        "packet_mmap",
        |config| config.ring.fanout = Some(Fanout::Ebpf),
        |_| {},
    );
}

fn packet_mmap_take() {
    receivers("packet_mmap", |config| config.ring.take = true, |_| {});
}

fn recvmmsg_steer() {
    receivers(
        "recvmmsg",
        |config| config.reuse_port = true,
        |rx| {
            rx.steer_by_cpu(&[0]).expect("a socket is steered to");
        },
    );
}

fn early_drop(rule: EarlyDrop) {
    let lab = lab();
    let installed = rule.install(&lab, PORT).expect("it is attached");
    assert_eq!(installed.dropped().expect("it counts"), 0);
}

fn drop_probe() {
    let probe = DropProbe::attach(&DropFilter {
        details_of: None,
        ports: PORT..=PORT,
    })
    .expect("it is attached");
    probe.counts().expect("it counts");
}

/// Stamped and not, paced and not: each is a program of its own.
fn generator() {
    let lab = lab();
    for target in addresses(&lab) {
        for (stamp, rate_pps) in [(None, None), (Some(1), None), (Some(1), Some(1e5))] {
            let config = TxConfig::new(target);
            let open = || backend::find("xdp").and_then(|xdp| xdp.open_tx(&config));
            let tx = lab.sender().within(open);
            let worker = TxWorker::spawn(TxTask {
                tx: tx.unwrap_or_else(|error| panic!("{target}: {error}")),
                cpu: None,
                stamp,
                to_group: false,
                end_markers: false,
                rate_pps,
                count: Some(256),
                duration: None,
                stop: Stop::new(),
            });
            let report = worker.expect("a thread can be had").join();
            assert!(
                report.error.is_none(),
                "{target} {stamp:?} {rate_pps:?}: {report:?}"
            );
        }
    }
}

fn steer() {
    let lab = lab();
    let host = lab.sender();
    // The lab has one already, unless it said why not; a second one goes beside it.
    let attach =
        || steering::attach(host.interface_index(), steering::By::Destination, 4).map(drop);
    host.within(attach).expect("it is attached");
}
