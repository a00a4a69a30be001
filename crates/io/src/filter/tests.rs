//! The programs, run without privilege, against the rule in Rust. That the kernel runs them
//! likewise is tested in `tests/filter.rs`.

use super::frames::{self, ADDRESS_V4, ADDRESS_V6, PORT};
use super::{Destination, FlowFilter};
use mpps_os::bpf::classic::{self, ClassicInstruction};
use mpps_os::bpf::sandbox::{PacketContext, Sandbox};
use proptest::prelude::*;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

const XDP_PASS: u64 = 2;
const XDP_REDIRECT: u64 = 4;
const TCX_NEXT: u64 = u64::MAX;
const TCX_DROP: u64 = 2;

/// Filters for the frames of [`frames`], and for others.
fn filters() -> Vec<FlowFilter> {
    let addresses: [IpAddr; 5] = [
        ADDRESS_V4.into(),
        ADDRESS_V6.into(),
        [0; 4].into(),
        [0; 16].into(),
        [10, 200, 3, 8].into(),
    ];
    let mut filters: Vec<_> = addresses
        .iter()
        .flat_map(|address| [PORT, PORT + 1].map(|port| SocketAddr::new(*address, port)))
        .map(FlowFilter::new)
        .collect();
    filters.push(FlowFilter::everything());
    filters.extend(several());
    filters
}

/// Several destinations: of one version and of both, with ranges whose ends are, and are not, the
/// port of the frames.
fn several() -> [FlowFilter; 5] {
    let of = |address: IpAddr, ports| FlowFilter::new(Destination { address, ports });
    let [v4, v6] = [IpAddr::from(ADDRESS_V4), ADDRESS_V6.into()];
    let [any_v4, any_v6, other] = [[0; 4].into(), [0; 16].into(), [10, 200, 3, 8].into()];
    let at = |address, ports| Destination { address, ports };
    [
        of(v4, PORT..=PORT + 9),
        of(v4, PORT + 1..=PORT + 9).or(at(any_v4, 1..=PORT - 1)),
        of(other, 0..=65_535)
            .or(at(v4, PORT - 9..=PORT))
            .or(at(v6, 1..=2)),
        of(v6, 1..=2)
            .or(at(v6, PORT..=PORT))
            .or(at(other, PORT..=PORT)),
        of(any_v6, 0..=65_535).or(at(any_v4, 53..=53)),
    ]
}

/// The answer, and the counts `[taken, passed, other]`.
type Outcome = (u64, [u64; 3]);

/// Descriptors whose numbers stand for maps.
struct Maps {
    sockets: File,
    counters: File,
}

impl Maps {
    fn new() -> Self {
        let open = || File::open("/dev/null").expect("/dev/null is everywhere");
        Self {
            sockets: open(),
            counters: open(),
        }
    }

    /// With counters only in this entry.
    fn world(&self, entry: u32) -> Sandbox {
        let mut world = Sandbox::new();
        world.add_map(self.counters.as_fd(), 4, 24, 1);
        world.insert(self.counters.as_fd(), &entry.to_ne_bytes(), &[0; 24]);
        world.add_map(self.sockets.as_fd(), 4, 4, 8);
        world
    }

    fn counts(&self, world: &Sandbox) -> [u64; 3] {
        let (_, bytes) = world.entries(self.counters.as_fd()).remove(0);
        let words = bytes.as_chunks::<8>().0;
        [0, 1, 2].map(|index| u64::from_ne_bytes(words[index]))
    }

    /// With a socket on queue 3 only.
    fn redirect(
        &self,
        filter: &FlowFilter,
        frame: &[u8],
        linear: Option<usize>,
        queue: u32,
    ) -> Outcome {
        let (sockets, counters) = (self.sockets.as_fd(), self.counters.as_fd());
        let program = filter.redirect(sockets, counters, linear.is_some());
        let program = program.expect("it assembles");
        let mut world = self.world(queue);
        world.insert(sockets, &3u32.to_ne_bytes(), &[0; 4]);
        let kind = PacketContext::Xdp { queue };
        let answer = world.run_on_packet(&program, kind, frame, linear.unwrap_or(frame.len()));
        (answer.expect("it runs"), self.counts(&world))
    }

    fn tcx_drop(&self, filter: &FlowFilter, frame: &[u8], linear: usize) -> Outcome {
        let program = filter.tcx_drop(self.counters.as_fd());
        let program = program.expect("it assembles");
        let mut world = self.world(0);
        let answer = world.run_on_packet(&program, PacketContext::Classifier, frame, linear);
        (answer.expect("it runs"), self.counts(&world))
    }
}

/// Classic BPF, as far as the filters need it (`include/uapi/linux/bpf_common.h`).
fn interpret(program: &[ClassicInstruction], packet: &[u8]) -> u32 {
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; 16], 0usize);
    let load = |offset: u32, bytes: usize| -> Option<u32> {
        let start = usize::try_from(offset).ok()?;
        let bytes = packet.get(start..start.checked_add(bytes)?)?;
        Some(
            bytes
                .iter()
                .fold(0, |word, byte| word << 8 | u32::from(*byte)),
        )
    };
    loop {
        let ClassicInstruction {
            code,
            jump_true,
            jump_false,
            constant: k,
        } = program[at];
        at += 1;
        let operand = if code & 0x08 == 0 { k } else { x };
        let jump = |holds| usize::from(if holds { jump_true } else { jump_false });
        let loaded = match code {
            0x20 if k >= 0xffff_f000 => Some(0),
            0x20 => load(k, 4),
            0x28 => load(k, 2),
            0x30 => load(k, 1),
            0x48 => load(x + k, 2),
            0x80 => Some(packet.len() as u32),
            0xb1 => load(k, 1),
            _ => Some(0),
        };
        let Some(loaded) = loaded else { return 0 };
        match code {
            0x20 | 0x28 | 0x30 | 0x48 | 0x80 => a = loaded,
            0xb1 => x = (loaded & 15) * 4,
            0x61 => x = memory[k as usize],
            0x02 => memory[k as usize] = a,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x07 => x = a,
            0x15 | 0x1d => at += jump(a == operand),
            0x25 | 0x2d => at += jump(a > operand),
            0x35 | 0x3d => at += jump(a >= operand),
            0x45 | 0x4d => at += jump(a & operand != 0),
            0x06 => return k,
            _ => panic!("no such instruction: {code:#x}"),
        }
    }
}

/// A socket of this machine's kernel behind the filter: what comes through, and how much of it.
fn through_kernel(program: &[ClassicInstruction], packet: &[u8]) -> Option<usize> {
    let (near, far) = UnixDatagram::pair().expect("sockets are to be had");
    far.set_nonblocking(true).expect("a flag");
    classic::attach(far.as_fd(), program).expect("the kernel takes the filter");
    near.send(packet).expect("it fits");
    far.recv(&mut [0; 4096]).ok()
}

fn check(frame: &[u8], linear: usize) -> Result<(), TestCaseError> {
    let maps = Maps::new();
    for filter in filters() {
        let ours = filter.matches(frame);
        let expected = match ours {
            true => (XDP_REDIRECT, [1, 0, 0]),
            false => (XDP_PASS, [0, 0, 1]),
        };
        prop_assert_eq!(
            maps.redirect(&filter, frame, None, 3),
            expected,
            "{:?}",
            filter
        );
        let headers = linear.max(frame.len().min(82));
        prop_assert_eq!(maps.redirect(&filter, frame, Some(headers), 3), expected);
        let elsewhere = match ours {
            true => (XDP_PASS, [0, 1, 0]),
            false => expected,
        };
        prop_assert_eq!(maps.redirect(&filter, frame, Some(headers), 2), elsewhere);
        let dropped = match ours {
            true => (TCX_DROP, [1, 0, 0]),
            false => (TCX_NEXT, [0, 0, 1]),
        };
        prop_assert_eq!(
            maps.tcx_drop(&filter, frame, linear),
            dropped,
            "{:?}",
            filter
        );
        let accepted = interpret(&filter.classic(), frame);
        prop_assert_eq!(
            accepted >= 0x1_0000,
            ours,
            "{:?} accepts {}",
            filter,
            accepted
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn programs_agree_with_the_rule(
        frame in frames::any_frame(),
        linear in any::<proptest::sample::Index>(),
    ) {
        check(&frame, linear.index(frame.len() + 1))?;
    }

    #[test]
    fn a_socket_of_the_kernel_agrees_with_the_rule(frame in frames::any_frame()) {
        for filter in filters() {
            let expected = filter.matches(&frame).then_some(frame.len());
            prop_assert_eq!(through_kernel(&filter.classic(), &frame), expected);
        }
    }
}

/// Frames by hand, so that it does not depend on luck that they occur.
fn examples() -> Vec<Vec<u8>> {
    let payload = [7; 6];
    let mut examples = vec![
        frames::frame_v4(5, &payload),
        frames::frame_v4(15, &payload),
        frames::frame_v4(5, &[]),
        frames::frame_v6(&[], 17, &payload),
        // Hop-by-hop options and a fragment header in front of UDP.
        frames::frame_v6(&[17, 0, 1, 4, 0, 0, 0, 0], 0, &payload),
        frames::frame_v6(&[17, 0, 0, 0, 0, 0, 0, 1], 44, &payload),
        vec![0xff; 60],
    ];
    let mut tagged = frames::frame_v4(5, &payload);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let mut fragment = frames::frame_v4(5, &payload);
    fragment[20] = 0x20;
    let mut version_3 = frames::frame_v4(15, &payload);
    version_3[14] = 0x3f;
    examples.extend([tagged, fragment, version_3, frames::frame_v4(4, &payload)]);
    examples
}

#[test]
fn every_shorter_frame_is_judged_alike() {
    for frame in examples() {
        for length in 0..=frame.len() {
            check(&frame[..length], length).expect("the programs agree");
        }
    }
    // Nor does it matter how much of the longest headers is in the first piece.
    let frame = &examples()[1];
    for linear in 0..frame.len() {
        check(frame, linear).expect("the programs agree");
    }
}

#[test]
fn the_rule_is_what_it_says() {
    let flow = |address: IpAddr| FlowFilter::new(SocketAddr::new(address, PORT));
    let [v4, any_v4] = [ADDRESS_V4, [0; 4]].map(|address| flow(address.into()));
    let [v6, any_v6] = [ADDRESS_V6, [0; 16]].map(|address| flow(address.into()));
    for (index, frame) in examples().iter().enumerate() {
        let is_v4 = index < 3;
        let is_v6 = index == 3;
        assert_eq!(
            [&v4, &any_v4].map(|f| f.matches(frame)),
            [is_v4; 2],
            "{index}"
        );
        assert_eq!(
            [&v6, &any_v6].map(|f| f.matches(frame)),
            [is_v6; 2],
            "{index}"
        );
        assert!(FlowFilter::everything().matches(frame));
    }
    let other = FlowFilter::new(SocketAddr::new(ADDRESS_V4.into(), PORT + 1));
    assert!(!other.matches(&examples()[0]));
}
