//! The program in the sandbox, against the template and the stamp.

use super::*;
use crate::{Stamp, StampKind, wire};
use mpps_os::bpf::sandbox::{CLOCK_NS, CLOCK_TAI_NS, PacketContext, Sandbox};
use proptest::prelude::*;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// `XDP_REDIRECT` of `enum xdp_action`.
const XDP_REDIRECT: u64 = 4;
const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TARGET_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A program with its world, run frame by frame on one recycled page.
struct Bench {
    template: Template,
    program: Vec<Instruction>,
    world: Sandbox,
    counts: File,
    page: Vec<u8>,
}

impl Bench {
    fn new(v6: bool, flows: u32, payload: &[u8], clock: Option<Clock>) -> Self {
        let [source, target] = if v6 {
            ["[fd00::1]:5000", "[fd00::2]:9"]
        } else {
            ["10.0.0.1:5000", "10.0.0.2:9"]
        };
        let [source, target]: [SocketAddr; 2] = [source, target].map(|text| text.parse().unwrap());
        let template = Template::new(SOURCE_MAC, TARGET_MAC, source, target, payload.len());
        // Any two files: their numbers are the names of the maps.
        let [counts, devices] = [(); 2].map(|()| File::open("/dev/null").unwrap());
        let summed = if clock.is_some() { STAMP_BYTES } else { 0 };
        let recipe = Recipe {
            template: &template,
            flows,
            payload_sum: wire::sum(&payload[summed..]),
            stamp: clock,
            pace: None,
            counts: counts.as_fd(),
            devices: devices.as_fd(),
        };
        let program = recipe.program().expect("the program assembles");
        let mut world = Sandbox::new();
        world.add_map(counts.as_fd(), 4, ProgramCounts::SIZE, 1);
        world.insert(counts.as_fd(), &[0; 4], &[0; 32]);
        world.add_map(devices.as_fd(), 4, 4, 1);
        world.insert(devices.as_fd(), &[0; 4], &[7, 0, 0, 0]);
        let mut page = vec![0; template.frame_bytes()];
        template.write(&mut page, 0, payload);
        Self {
            template,
            program,
            world,
            counts,
            page,
        }
    }

    /// Runs it on the page as the run before left it, with the header changed as if by a receiver.
    fn next(&mut self) -> Vec<u8> {
        self.page[6..self.template.header_bytes()].fill(0xee);
        let queue = PacketContext::Xdp { queue: 0 };
        let bytes = self.page.len();
        let run = self
            .world
            .run_on_packet(&self.program, queue, &self.page, bytes);
        assert_eq!(run.expect("the program runs"), XDP_REDIRECT);
        self.page = self.world.packet_after().to_vec();
        self.page.clone()
    }

    fn counts(&self) -> ProgramCounts {
        ProgramCounts::read(&self.world.entries(self.counts.as_fd())[0].1)
    }

    /// The frame that ought to come out.
    fn expected(&self, flow: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; self.template.frame_bytes()];
        self.template.write(&mut frame, flow, payload);
        frame
    }
}

proptest! {
    #[test]
    fn frames_are_those_of_the_template_flow_after_flow(
        v6: bool,
        flows in 1_u32..40,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bench = Bench::new(v6, flows, &payload, None);
        for run in 0..2 * flows + 3 {
            let flow = run % flows;
            let expected = bench.expected(flow as u16, &payload);
            prop_assert_eq!(bench.next(), expected);
        }
        let made = bench.counts().data.frames(flows.into());
        prop_assert_eq!(made, u64::from(2 * flows + 3));
    }

    #[test]
    fn stamps_are_completed(
        v6: bool,
        flows in 1_u32..20,
        sender in 0_u8..128,
        run in 0_u32..1 << 20,
        rest in proptest::collection::vec(any::<u8>(), 0..50),
        rounds: u32,
        ahead in -40_i64..=0,
    ) {
        let realtime_ahead_ns = ahead * 1_000_000_000;
        let stamp = |kind, flow, sequence| Stamp {
            kind,
            sender,
            flow,
            run,
            sequence,
            time_ns: CLOCK_TAI_NS.wrapping_add_signed(realtime_ahead_ns) & ((1 << 40) - 256),
        };
        let mut payload = vec![0; STAMP_BYTES];
        stamp(StampKind::Data, 0, 0).write(&mut payload);
        payload.extend(&rest);
        let clock = Clock { realtime_ahead_ns };
        let mut bench = Bench::new(v6, flows, &payload, Some(clock));
        // 32 bits of sequence numbers are more than would be run here.
        let mut counts = ProgramCounts::default();
        counts.data.rounds = u64::from(rounds);
        let mut bytes = [0; 32];
        Plain::write(&counts, &mut bytes);
        bench.world.insert(bench.counts.as_fd(), &[0; 4], &bytes);

        let frames = flows + flows / 2;
        for run in 0..frames {
            let flow = (run % flows) as u16;
            let sequence = counts.data.rounds + u64::from(run / flows);
            let mut expected = payload.clone();
            stamp(StampKind::Data, flow, sequence).write(&mut expected);
            let frame = bench.next();
            prop_assert_eq!(frame, bench.expected(flow, &expected));
        }
        // Then the end markers, from a new template.
        stamp(StampKind::End, 0, 0).write(&mut payload);
        let mut page = vec![0; bench.template.frame_bytes()];
        bench.template.write(&mut page, 0, &payload);
        bench.page = page;
        for flow in 0..flows as u16 {
            let complete = counts.data.rounds + 1;
            let sequence = complete + u64::from(u32::from(flow) < frames % flows);
            let mut expected = payload.clone();
            stamp(StampKind::End, flow, sequence).write(&mut expected);
            let frame = bench.next();
            prop_assert_eq!(frame, bench.expected(flow, &expected));
        }
        prop_assert_eq!(bench.counts().end, ProgramProgress { flow: 0, rounds: 1 });
    }
}

#[test]
fn a_frame_that_is_too_short_is_dropped() {
    let mut bench = Bench::new(false, 1, &[], None);
    let queue = PacketContext::Xdp { queue: 0 };
    let short = vec![0; bench.template.header_bytes() - 1];
    let bytes = short.len();
    let run = bench
        .world
        .run_on_packet(&bench.program, queue, &short, bytes);
    assert_eq!(run.expect("the program runs"), XDP_DROP as u64);
    assert_eq!(bench.counts(), ProgramCounts::default());
}

/// The answer of a paced program at the sandbox's only moment, and the allowance left.
fn paced(next: u64, left: u64) -> (u64, Allowance) {
    let [source, target]: [SocketAddr; 2] =
        ["10.0.0.1:5000", "10.0.0.2:9"].map(|text| text.parse().unwrap());
    let template = Template::new(SOURCE_MAC, TARGET_MAC, source, target, 32);
    let [counts, devices, allowance] = [(); 3].map(|()| File::open("/dev/null").unwrap());
    let recipe = Recipe {
        template: &template,
        flows: 1,
        payload_sum: 0,
        stamp: None,
        pace: Some(ProgramPace {
            interval: interval(1e6).unwrap(),
            allowance: allowance.as_fd(),
        }),
        counts: counts.as_fd(),
        devices: devices.as_fd(),
    };
    let mut world = Sandbox::new();
    world.add_map(counts.as_fd(), 4, ProgramCounts::SIZE, 1);
    world.insert(counts.as_fd(), &[0; 4], &[0; 32]);
    world.add_map(devices.as_fd(), 4, 4, 1);
    world.insert(devices.as_fd(), &[0; 4], &[7, 0, 0, 0]);
    world.add_map(allowance.as_fd(), 4, Allowance::SIZE, 1);
    let mut bytes = [0; 16];
    Allowance { next, left }.write(&mut bytes);
    world.insert(allowance.as_fd(), &[0; 4], &bytes);
    let mut page = vec![0; template.frame_bytes()];
    template.write(&mut page, 0, &[0; 32]);
    let queue = PacketContext::Xdp { queue: 0 };
    let run = world.run_on_packet(&recipe.program().unwrap(), queue, &page, page.len());
    let after = Allowance::read(&world.entries(allowance.as_fd())[0].1);
    (run.expect("the program runs"), after)
}

#[test]
fn a_paced_program_sends_what_is_due_and_allowed() {
    const NOW: u64 = CLOCK_NS << 10;
    const MICROSECOND: u64 = 1000 << 10;
    let allowed = |next, left| Allowance { next, left };
    assert_eq!(
        paced(NOW, 2),
        (XDP_REDIRECT, allowed(NOW + MICROSECOND, 1)),
        "due now"
    );
    let late = NOW - 5 * MICROSECOND;
    assert_eq!(
        paced(late, 2),
        (XDP_REDIRECT, allowed(late + MICROSECOND, 1)),
        "a little late is made up for"
    );
    assert_eq!(
        paced(0, 9),
        (
            XDP_REDIRECT,
            allowed(NOW - BEHIND_MAX as u64 * MICROSECOND + MICROSECOND, 8)
        ),
        "long ago is, as far as the ring of a veth has room"
    );
    assert_eq!(paced(NOW + 1, 2), (1, allowed(NOW + 1, 2)), "not due yet");
    assert_eq!(paced(NOW, 0), (1, allowed(NOW, 0)), "no more is allowed");
}

#[test]
fn rates_have_intervals() {
    assert_eq!(interval(1e6), Some(1_024_000));
    assert_eq!(interval(1e13), None, "a datagram has no time at all");
    assert_eq!(interval(1.0), None, "longer than 32 bits");
}
