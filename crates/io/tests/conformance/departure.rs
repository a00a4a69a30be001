//! Times for datagrams to leave: the kernel has them to the nanosecond. That a qdisc keeps to them is its own
//! matter.

use super::kernel::wake_loopback;
use mpps_io::{BACKENDS, Backend, RxConfig, Transmit, TransmitClock};
use mpps_os::bpf::asm::{Condition, Helper, R0, R1, R2, R3, R4, R6, R7, R10};
use mpps_os::bpf::asm::{Operation, Size};
use mpps_os::bpf::{ArrayMap, Assembler, BpfLink, Program, ProgramKind};
use mpps_os::namespace::NetNamespace;
use mpps_trial::{Failed, Need, Trial};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

/// `tstamp` of `struct __sk_buff`, and `TCX_NEXT`.
const SKB_TIME: i16 = 152;
const TCX_NEXT: i32 = -1;
/// That of `lo` in every network namespace.
const LOOPBACK: u32 = 1;

pub(crate) fn trials() -> Vec<Trial> {
    let honours = |row: &&Backend| row.rx_fields.contains(&"transmit_clock");
    let trial = |row: &'static Backend| {
        let test = move || -> Result<(), Failed> {
            NetNamespace::new()?.run(|| {
                wake_loopback();
                the_kernel_gets_the_time_to_leave(row)
            })?
        };
        let name = format!(
            "conformance::{}::the_kernel_has_the_times_to_leave",
            row.name
        );
        Trial::waits(name, test).needs(Need::probe(watched))
    };
    BACKENDS.iter().filter(honours).map(trial).collect()
}

/// Whether this machine can see what the kernel is about to send.
fn watched() -> Result<(), String> {
    let watch = || NetNamespace::new()?.run(|| watch().map(drop))?;
    watch().map_err(|error: mpps_os::CallError| error.to_string())
}

/// Keeps the last time to leave of what leaves by `lo`.
fn watch() -> mpps_os::CallResult<(ArrayMap<[u64; 1]>, BpfLink)> {
    let seen = ArrayMap::create("seen", 1)?;
    let mut program = Assembler::new();
    program.set(R6, R1).load(Size::Double, R7, R6, SKB_TIME);
    program.jump_if(Condition::Equal, R7, 0, "end");
    program.store(Size::Word, R10, -4, 0);
    program.store(Size::Double, R10, -16, R7);
    program.set_map(R1, seen.as_fd()).set(R2, R10).set(R3, R10);
    program.compute(Operation::Add, R2, -4);
    program.compute(Operation::Add, R3, -16);
    program.set(R4, 0).call(Helper::MapUpdate);
    program.label("end").set(R0, TCX_NEXT).exit();
    let program = Program::load(ProgramKind::Classifier, "seen", &program.finish()?)?;
    Ok((seen, BpfLink::tcx_egress(&program, LOOPBACK)?))
}

fn the_kernel_gets_the_time_to_leave(row: &Backend) -> Result<(), Failed> {
    let (seen, _link) = watch()?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    let mut datagram = Transmit::new(client.local_addr()?, b"late");
    for clock in [TransmitClock::Monotonic, TransmitClock::Tai] {
        let mut config = RxConfig::new("127.0.0.1:0".parse().expect("an address"));
        let mut untimed = row.open_rx(&config)?;
        datagram.time = Some(clock.now() + Duration::from_nanos(1_234_567));
        let sent = untimed.transmit(&[datagram])?;
        assert_eq!((sent.accepted, sent.refused), (0, 1), "without a clock");
        config.transmit_clock = Some(clock);
        let sent = row.open_rx(&config)?.transmit(&[datagram])?;
        assert_eq!((sent.accepted, sent.refused), (1, 0));
        let seen = seen.value(0)?.map(|[time]| Duration::from_nanos(time));
        assert_eq!(seen, datagram.time, "{clock:?}");
    }
    Ok(())
}
