//! The flow filter's programs in the kernel: accepted by the verifier, and of one mind with the
//! rule in Rust; and at work on an interface.

#[path = "../src/filter/frames.rs"]
mod frames;

use mpps_io::parts::{FlowCounters, FlowCounts, FlowFilter, FlowProgram};
use mpps_io::{Attach, Destination};
use mpps_os::bpf::asm::{Assembler, R0};
use mpps_os::bpf::{
    BpfLink, LiveFrames, PerCpuMapKind, Program, ProgramKind, XDP_HAS_FRAGMENTS, XskMap,
};
use mpps_os::ethtool;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::{Failed, Need, Trial, trials};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The kernel runs no program on less than an Ethernet header.
const LEAST: usize = 14;
const XDP_PASS: u32 = 2;
const XDP_TX: i32 = 3;
const TCX_NEXT: u32 = u32::MAX;
const TCX_DROP: u32 = 2;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(maps)):
            programs_agree_with_the_rule,
            an_interface_is_shared_with_the_kernel,
            packets_are_taken_from_the_kernel,
            loopback_is_generic;
    ]
}

/// Whether maps can be made here; why not.
fn maps() -> Result<(), String> {
    let map = XskMap::create("probe", 1);
    map.map(drop).map_err(|error| error.to_string())
}

/// A filter, and its programs in the kernel.
struct Loaded {
    filter: FlowFilter,
    counters: FlowCounters,
    whole: Program,
    fragments: Program,
    classifier: Program,
}

impl Loaded {
    fn new(filter: FlowFilter) -> Result<Self, Failed> {
        let sockets = XskMap::create("sockets", 4)?;
        let counters = FlowCounters::create(PerCpuMapKind::Array, "counts", 1)?;
        let redirect = |fragments, flags| -> Result<Program, Failed> {
            let program = filter.redirect(sockets.as_fd(), counters.as_fd(), fragments)?;
            let kind = ProgramKind::Xdp;
            Ok(Program::load_with_flags(kind, "redirect", &program, flags)?)
        };
        let drop = filter.tcx_drop(counters.as_fd())?;
        Ok(Self {
            whole: redirect(false, 0)?,
            fragments: redirect(true, XDP_HAS_FRAGMENTS)?,
            classifier: Program::load(ProgramKind::Classifier, "drop", &drop)?,
            filter,
            counters,
        })
    }

    /// `[taken, passed, other]`
    fn counts(&self) -> Result<[u64; 3], mpps_os::CallError> {
        let cpus = self.counters.values(&[0])?;
        Ok([0, 1, 2].map(|place| cpus.iter().map(|counts| counts[place]).sum()))
    }

    fn check(&self, frame: &[u8]) -> Result<(), String> {
        let fail = |error: mpps_os::CallError| error.to_string();
        let ours = self.filter.matches(frame);
        let before = self.counts().map_err(fail)?;
        let mut answers = vec![
            self.whole.test_run(frame).map_err(fail)?,
            self.fragments.test_run(frame).map_err(fail)?,
        ];
        if frame.len() > 82 {
            let cut = self.fragments.test_run_in_fragments(frame, 82);
            answers.push(cut.map_err(fail)?);
        }
        // There is no socket in the map, so that the wanted ones are passed, too.
        if answers
            .iter()
            .any(|run| run.answer != XDP_PASS || run.data != frame)
        {
            return Err(format!("{answers:?}"));
        }
        let mut expected = match ours {
            true => [0, answers.len() as u64, 0],
            false => [0, 0, answers.len() as u64],
        };
        if is_taken_by_classifiers(frame) {
            let (verdict, place) = if ours { (TCX_DROP, 0) } else { (TCX_NEXT, 2) };
            let answer = self.classifier.test_run(frame).map_err(fail)?.answer;
            if answer != verdict {
                return Err(format!("{:?}: {answer}", self.filter));
            }
            expected[place] += 1;
        }
        let after = self.counts().map_err(fail)?;
        let counted = [0, 1, 2].map(|place| after[place] - before[place]);
        match counted == expected {
            true => Ok(()),
            false => Err(format!("{:?}: {counted:?}", self.filter)),
        }
    }
}

/// The kernel runs no classifier on a frame whose IP header is cut off, or with nothing behind the
/// Ethernet header (`bpf_prog_test_run_skb`, `net/bpf/test_run.c`).
fn is_taken_by_classifiers(frame: &[u8]) -> bool {
    let least = match frame[12..14] {
        [0x08, 0x00] => 20,
        [0x86, 0xdd] => 40,
        _ => 1,
    };
    frame.len() >= 14 + least
}

fn programs_agree_with_the_rule() -> Result<(), Failed> {
    let addresses: [IpAddr; 4] = [
        frames::ADDRESS_V4.into(),
        frames::ADDRESS_V6.into(),
        [0; 4].into(),
        [0; 16].into(),
    ];
    let mut loaded = addresses
        .map(|address| SocketAddr::new(address, frames::PORT))
        .map(|destination| Loaded::new(FlowFilter::new(destination)))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let several = addresses[..2].iter().flat_map(|address| {
        [1..=9, frames::PORT..=frames::PORT + 9].map(|ports| Destination {
            address: *address,
            ports,
        })
    });
    let nothing = Destination {
        address: [10, 0, 0, 1].into(),
        ports: 1..=1,
    };
    loaded.push(Loaded::new(
        several.fold(FlowFilter::new(nothing), FlowFilter::or),
    )?);
    loaded.push(Loaded::new(FlowFilter::everything())?);

    for frame in [
        frames::frame_v4(5, &[1; 100]),
        frames::frame_v4(15, &[]),
        frames::frame_v6(&[], 17, &[1; 100]),
        frames::frame_v6(&[17, 0, 1, 4, 0, 0, 0, 0], 0, &[]),
    ] {
        for length in LEAST..=frame.len() {
            loaded
                .iter()
                .try_for_each(|filter| filter.check(&frame[..length]))?;
        }
    }
    let frames = prop_oneof![frames::valid_frame().boxed(), frames::any_frame().boxed()]
        .prop_filter("the kernel has a least length", |frame| {
            frame.len() >= LEAST
        });
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 2048,
        // A failure is printed whole; it goes into the examples above.
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&frames, |frame| {
        let failed = loaded.iter().try_for_each(|filter| filter.check(&frame));
        failed.map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, frame)) => Err(format!("{why} {frame:02x?}").into()),
        Err(error) => Err(error.into()),
    }
}

fn an_interface_is_shared_with_the_kernel() -> Result<(), Failed> {
    let (near, far) = pair()?;
    let filter = FlowFilter::new(SocketAddr::new(frames::ADDRESS_V4.into(), frames::PORT));
    let ours = frames::frame_v4(5, &[0; 20]);
    let foreign = frames::frame_v6(&[], 17, &[0; 20]);
    for (wish, native) in [
        (None, true),
        (Some(Attach::Native), true),
        (Some(Attach::Generic), false),
    ] {
        let program = far.run(|| -> Result<_, Failed> {
            let index = link::index("far")?;
            link::set_up(index)?;
            Ok(FlowProgram::attach(index, &filter, wish, 2)?)
        })??;
        check(program.is_native() == native, "another mode")?;
        check(program.takes_fragments(), "no fragments")?;
        check(
            far.run(|| {
                let index = link::index("far").ok()?;
                FlowProgram::attach(index, &filter, wish, 2).ok()
            })?
            .is_none(),
            "two programs on one interface",
        )?;
        check(
            program.bind(2, near.as_fd()).is_err(),
            "a queue beyond the last",
        )?;
        program.unbind(1)?;

        send(&near, &ours, 5)?;
        send(&near, &foreign, 7)?;
        wait_until(|| {
            let counts = counted(&program)?;
            Ok(counts.passed >= 5 && counts.other >= 7)
        })?;
        // The kernel's own chatter over IPv6 counts as other.
        let counts = counted(&program)?;
        check(
            (counts.redirected, counts.passed) == (0, 5) && counts.other >= 7,
            &format!("{counts:?}"),
        )?;
    }
    Ok(())
}

/// The frames of both queues: which one they come by is their sender's CPU's to say.
fn counted(program: &FlowProgram) -> Result<FlowCounts, Failed> {
    let [a, b] = [program.counts(0)?, program.counts(1)?];
    Ok(FlowCounts {
        redirected: a.redirected + b.redirected,
        passed: a.passed + b.passed,
        other: a.other + b.other,
    })
}

fn packets_are_taken_from_the_kernel() -> Result<(), Failed> {
    let (near, far) = pair()?;
    let filter = FlowFilter::new(SocketAddr::new(frames::ADDRESS_V4.into(), frames::PORT));
    let loaded = Loaded::new(filter)?;
    let link = far.run(|| {
        let index = link::index("far")?;
        link::set_up(index)?;
        BpfLink::tcx_ingress(&loaded.classifier, index)
    })??;
    send(&near, &frames::frame_v4(5, &[0; 20]), 5)?;
    send(&near, &frames::frame_v6(&[], 17, &[0; 20]), 7)?;
    wait_until(|| {
        let counts = loaded.counts()?;
        Ok(counts[0] >= 5 && counts[2] >= 7)
    })?;
    let counts = loaded.counts()?;
    check(counts[..2] == [5, 0], &format!("{counts:?}"))?;
    drop(link);
    let before = loaded.counts()?;
    send(&near, &frames::frame_v4(5, &[0; 20]), 5)?;
    check(loaded.counts()? == before, "it is still attached")
}

fn loopback_is_generic() -> Result<(), Failed> {
    let inside = NetNamespace::new()?;
    inside.run(|| -> Result<(), Failed> {
        let index = link::index("lo")?;
        let filter = FlowFilter::everything();
        let program = FlowProgram::attach(index, &filter, None, 1)?;
        check(!program.is_native(), "loopback has a native mode")?;
        drop(program);
        let wish = Some(Attach::Native);
        check(
            FlowProgram::attach(index, &filter, wish, 1).is_err(),
            "another mode than asked for",
        )
    })?
}

/// Two namespaces, joined by the links `near` and `far`.
fn pair() -> Result<(NetNamespace, NetNamespace), Failed> {
    let (near, far) = (NetNamespace::new()?, NetNamespace::new()?);
    near.run(|| link::create_veth("near", 2, "far", 2, far.as_fd()))??;
    // Without a native program the far end takes such frames only if it has NAPI for GRO.
    far.run(|| ethtool::set_feature("far", "rx-gro", true))??;
    Ok((near, far))
}

/// NAPI delivers when it likes; what has not come after ten seconds is missed by the checks.
fn wait_until(is_done: impl Fn() -> Result<bool, Failed>) -> Result<(), Failed> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_done()? && Instant::now() < deadline {
        std::thread::yield_now();
    }
    Ok(())
}

/// Puts frames on the wire: they leave by `near`.
fn send(near: &NetNamespace, frame: &[u8], count: u32) -> Result<(), Failed> {
    let program = Assembler::new().set(R0, XDP_TX).exit().finish()?;
    let program = Program::load(ProgramKind::Xdp, "send", &program)?;
    near.run(|| -> Result<(), Failed> {
        let interface_index = link::index("near")?;
        link::set_up(interface_index)?;
        let place = LiveFrames {
            interface_index,
            queue: 0,
        };
        Ok(program.send_live(frame, place, count, 0)?)
    })?
}

fn check(good: bool, why: &str) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(why.into()) }
}
