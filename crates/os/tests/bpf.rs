//! Programs, maps and links against the kernel, in namespaces made for the test.

use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use crate::{check, pair};
use mpps_os::bpf::asm::{Assembler, Condition, Helper, Operation, R0, R1, R2, R3, R4, R10, Size};
use mpps_os::bpf::{
    BpfLink, Instruction, LiveFrames, PerCpuMap, PerCpuMapKind, Program, ProgramKind,
    XDP_HAS_FRAGMENTS, XdpAttach, XskMap,
};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::{Failed, Need, Trial, trials};

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const XDP_TX: i32 = 3;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(programs)):
            a_test_run_answers,
            a_refusal_has_the_verifiers_words,
            live_frames_are_counted_and_sent,
            an_xdp_link_detaches_when_it_is_closed,
            an_xdp_link_detaches_although_a_child_has_a_copy,
            loopback_has_generic_xdp_only,
            a_socket_map_takes_sockets_only;
    ]
}

/// Why no program can be loaded.
fn programs() -> Result<(), String> {
    let loaded = answering(XDP_PASS);
    loaded.map(drop).map_err(|failed| format!("{failed:?}"))
}

fn a_test_run_answers() -> Result<(), Failed> {
    let frame: Vec<u8> = (0..100).collect();
    let run = answering(XDP_TX)?.test_run(&frame)?;
    check(
        run.answer == XDP_TX as u32 && run.data == frame,
        "another answer",
    )?;
    let short = answering(XDP_TX)?.test_run(&frame[..13]);
    check(short.is_err(), "a frame without its header was taken")?;

    // The program says how long the first buffer is.
    let mut program = Assembler::new();
    program.load(Size::Word, R0, R1, 4);
    program.load(Size::Word, R2, R1, 0);
    program.compute(Operation::Subtract, R0, R2).exit();
    let kind = ProgramKind::Xdp;
    let program = Program::load_with_flags(kind, "length", &program.finish()?, XDP_HAS_FRAGMENTS)?;
    check(program.test_run(&frame)?.answer == 100, "another length")?;
    let cut = program.test_run_in_fragments(&frame, 64)?;
    check(
        cut.answer == 64 && cut.data == frame,
        "the packet is not in two parts",
    )
}

fn a_refusal_has_the_verifiers_words() -> Result<(), Failed> {
    let program = Assembler::new().exit().finish()?;
    let refusal = Program::load(ProgramKind::Xdp, "bad", &program).err();
    let text = refusal.ok_or("R0 was never written")?.to_string();
    check(text.contains("R0 !read_ok"), &text)
}

fn live_frames_are_counted_and_sent() -> Result<(), Failed> {
    let counts = PerCpuMap::create(PerCpuMapKind::Array, "frames", 1)?;
    let program = Program::load(ProgramKind::Xdp, "sender", &counting(&counts, XDP_TX)?)?;
    let pass = answering(XDP_PASS)?;
    let (near, far) = pair(2)?;
    // A frame that is sent into a veth is taken there by its NAPI context, which XDP brings.
    let _link = far.run(|| BpfLink::xdp(&pass, link::index("far")?, XdpAttach::Native))??;
    far.run(|| link::set_up(link::index("far")?))??;
    let sent = near.run(|| -> mpps_os::CallResult<_> {
        let interface_index = link::index("near")?;
        link::set_up(interface_index)?;
        let before = link::statistics(interface_index)?.tx_packets;
        let place = LiveFrames {
            interface_index,
            queue: 1,
        };
        program.send_live(&[0x11; 60], place, 1000, 0)?;
        let nowhere = LiveFrames {
            interface_index,
            queue: 2,
        };
        let refused = program.send_live(&[0x11; 60], nowhere, 1, 0).is_err();
        let crowd = program
            .send_live(&[0x11; 60], place, 1, 257)
            .map_err(|e| e.errno());
        Ok((
            link::statistics(interface_index)?.tx_packets - before,
            refused,
            crowd,
        ))
    })??;
    check(sent.1, "a queue that is not there was taken")?;
    check(
        sent.2 == Err(Some(libc::E2BIG)),
        "a batch was too small to be refused",
    )?;
    let counted: u64 = counts.values(&[0])?.iter().map(|[count]| count).sum();
    check(counted == 1000, &format!("{counted} frames were handled"))?;
    // Frames that do not fit into the peer's ring are dropped there; IPv6 may have sent, too.
    check(sent.0 > 0, "nothing was sent")
}

fn an_xdp_link_detaches_when_it_is_closed() -> Result<(), Failed> {
    let (near, _far) = pair(1)?;
    let program = answering(XDP_DROP)?;
    near.run(|| -> Result<(), Failed> {
        let index = link::index("near")?;
        let held = BpfLink::xdp(&program, index, XdpAttach::Native)?;
        for (attach, errno) in [
            (XdpAttach::Native, libc::EBUSY),
            (XdpAttach::Generic, libc::EEXIST),
        ] {
            let second = BpfLink::xdp(&program, index, attach).err();
            let second = second.ok_or("two programs on one interface")?;
            check(second.errno() == Some(errno), &second.to_string())?;
        }
        drop(held);
        let generic = BpfLink::xdp(&program, index, XdpAttach::Generic)?;
        drop(generic);
        BpfLink::xdp(&program, index, XdpAttach::Native)?;
        let nowhere = BpfLink::xdp(&program, 0x7fff_ffff, XdpAttach::Native).err();
        check(nowhere.is_some(), "there is no such interface")
    })?
}

/// Between fork(2) and execve(2) a child has its parent's descriptors, whichever thread started it.
#[expect(unsafe_code, reason = "what a child does before its program runs")]
fn an_xdp_link_detaches_although_a_child_has_a_copy() -> Result<(), Failed> {
    let (near, _far) = pair(1)?;
    let program = answering(XDP_DROP)?;
    let attach = || {
        let index = link::index("near")?;
        BpfLink::xdp(&program, index, XdpAttach::Native)
    };
    let held = near.run(attach)??;
    let (mut forked, tell) = io::pipe()?;
    let (wait, go_on) = io::pipe()?;
    let mut child = Command::new("true");
    // SAFETY: between fork and execve this writes and reads one byte each, and allocates nothing.
    let child = unsafe {
        child.pre_exec(move || {
            (&tell).write_all(b"f")?;
            (&wait).read_exact(&mut [0])
        })
    };
    thread::scope(|scope| {
        let started = scope.spawn(|| child.status());
        forked.read_exact(&mut [0])?;
        drop(held);
        // An interface has one native program.
        let second = near.run(attach);
        (&go_on).write_all(b"g")?;
        check(started.join().is_ok_and(|ran| ran.is_ok()), "no child ran")?;
        second??;
        Ok(())
    })
}

fn loopback_has_generic_xdp_only() -> Result<(), Failed> {
    let inside = NetNamespace::new()?;
    let program = answering(XDP_DROP)?;
    inside.run(|| -> Result<(), Failed> {
        let index = link::index("lo")?;
        link::set_up(index)?;
        let refusal = BpfLink::xdp(&program, index, XdpAttach::Native).err();
        check(
            refusal.and_then(|error| error.errno()) == Some(libc::EOPNOTSUPP),
            "native XDP on loopback",
        )?;
        let held = BpfLink::xdp(&program, index, XdpAttach::Generic)?;
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        receiver.set_nonblocking(true)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        // Loopback delivers in the call, so there is nothing to wait for.
        sender.send_to(b"x", receiver.local_addr()?)?;
        check(receiver.recv(&mut [0; 8]).is_err(), "it was not dropped")?;
        drop(held);
        sender.send_to(b"x", receiver.local_addr()?)?;
        receiver.set_nonblocking(false)?;
        check(receiver.recv(&mut [0; 8])? == 1, "it is still dropped")
    })?
}

fn a_socket_map_takes_sockets_only() -> Result<(), Failed> {
    let map = XskMap::create("sockets", 2)?;
    let other = UdpSocket::bind("127.0.0.1:0")?;
    check(map.set(0, other.as_fd()).is_err(), "a UDP socket was taken")?;
    let beyond = map.set(2, other.as_fd()).err();
    check(beyond.is_some(), "a queue beyond the end was taken")?;
    map.clear(0)?;
    check(map.clear(2).is_err(), "a queue beyond the end was cleared")?;
    check(
        XskMap::create("none", 0).is_err(),
        "a map without room was made",
    )
}

/// A program that gives every frame the same answer.
fn answering(answer: i32) -> Result<Program, Failed> {
    let program = Assembler::new().set(R0, answer).exit().finish()?;
    Ok(Program::load(ProgramKind::Xdp, "answer", &program)?)
}

/// Also counts the frames.
fn counting(
    counts: &PerCpuMap<[u32; 1], [u64; 1]>,
    answer: i32,
) -> Result<Vec<Instruction>, Failed> {
    let mut program = Assembler::new();
    program.store(Size::Word, R10, -4, 0);
    program.set_map(R1, counts.as_fd()).set(R2, R10);
    program
        .compute(Operation::Add, R2, -4)
        .call(Helper::MapLookup);
    program.jump_if(Condition::Equal, R0, 0, "out");
    program.load(Size::Double, R3, R0, 0).set(R4, 1);
    program.compute(Operation::Add, R3, R4);
    program.store(Size::Double, R0, 0, R3);
    program.label("out").set(R0, answer).exit();
    Ok(program.finish()?)
}
