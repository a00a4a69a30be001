//! Answers that leave by a socket, a call for many.

use super::held_port::ListenedInterface;
use super::socket::SEND_TIMEOUT;
use crate::requests::{PacketSlot, Requests};
use crate::wire::ETHERNET_BYTES;
use crate::{Batch, DatagramDetails, Error, Layer, PacketDescriptor, RxCaps, Served, Wait};
use mpps_os::messages::SendMessages;
use mpps_os::netlink::link;
use mpps_os::packet_socket::{PacketSocket, Protocol};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};

/// Answers of a socket to what it received, or of another one.
#[derive(Debug)]
pub(super) struct Answers {
    messages: SendMessages,
}

impl Answers {
    /// Room for an answer to each datagram of a batch.
    pub(super) fn new(caps: &RxCaps) -> Self {
        Self {
            messages: SendMessages::to_each(caps.batch, caps.buffer_bytes),
        }
    }

    /// The same of frames.
    fn of_frames(count: usize, frame_bytes: usize) -> Self {
        Self {
            messages: SendMessages::new(count, frame_bytes, None),
        }
    }

    /// Sends answers, each to its source. It leaves from the
    /// address that was asked, if that is known. Without `details`, the socket itself knows where to.
    /// `lying` is where they lie, one for each question. If `wait` did not wait for the questions,
    /// this does not wait for room either.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        lying: &Batch<'_>,
        slots: &[PacketSlot],
        details: Option<&[DatagramDetails]>,
        wait: Wait,
    ) -> io::Result<Served> {
        let mut served = Served {
            received: slots.len() as u64,
            ..Served::default()
        };
        let stride = self.messages.stride();
        let mut ready = 0;
        for (at, (slot, (answer, _))) in slots.iter().zip(lying.raw()).enumerate() {
            if slot.answer.is_none() {
                continue;
            }
            let from = ready * stride;
            let place = self.messages.arena_mut().get_mut(from..from + answer.len());
            let question = details.map(|details| details.get(at).copied().unwrap_or_default());
            let target = question.map(|question| question.source);
            let (Some(place), None | Some(Some(_))) = (place, target) else {
                served.refused += 1;
                continue;
            };
            place.copy_from_slice(answer);
            self.messages.set_bytes(ready, answer.len());
            if let Some(target) = target.flatten() {
                self.messages.set_target(ready, &target);
                let asked = question.and_then(|question| question.local);
                // A group and a broadcast are the address of no host.
                let is_a_host =
                    |asked: &IpAddr| !asked.is_multicast() && *asked != Ipv4Addr::BROADCAST;
                self.messages.set_source(ready, asked.filter(is_a_host));
            }
            ready += 1;
        }
        let messages = &mut self.messages;
        let waits = !wait.send_timeout().is_zero();
        let call = |from| messages.send(socket, from..ready, waits);
        let (sent, refused) = send_answers(ready, call)?;
        served.sent += sent;
        served.refused += refused;
        Ok(served)
    }
}

/// Packets in memory that is not the receiver's to change: each is copied to a place of its own, and
/// changed there into its answer.
#[derive(Debug)]
pub(super) struct AnswerCopies {
    /// The places, one each `stride`.
    arena: Vec<u8>,
    /// Bytes of the longest answer.
    stride: usize,
    slots: Vec<PacketSlot>,
}

impl AnswerCopies {
    /// Room for `batch` packets.
    pub(super) fn new(batch: usize, stride: usize) -> Self {
        Self {
            arena: vec![0; stride * batch],
            stride,
            slots: Vec::with_capacity(batch),
        }
    }

    /// Has `answer` say what is to be sent of each packet. A frame that is longer than its place, such
    /// as a train, is cut, and cannot be answered.
    pub(super) fn ask(
        &mut self,
        batch: &Batch<'_>,
        layer: Layer,
        answer: &mut dyn FnMut(Requests<'_>),
    ) {
        self.slots.clear();
        let places = self.arena.chunks_exact_mut(self.stride);
        for (place, (packet, came)) in places.zip(batch.raw()) {
            let bytes = packet.len().min(place.len());
            place[..bytes].copy_from_slice(&packet[..bytes]);
            let has_room = layer == Layer::Payload || bytes == came.wire_bytes as usize;
            self.slots.push(PacketSlot {
                bytes: bytes as u32,
                wire_bytes: came.wire_bytes,
                room: if has_room { self.stride as u32 } else { 0 },
                ..PacketSlot::default()
            });
        }
        if !self.slots.is_empty() {
            let (arena, stride) = (&mut self.arena, self.stride);
            let requests = Requests::new(arena, stride, layer, &mut self.slots);
            answer(requests.with_details(batch.details()));
        }
    }

    /// The answer to each packet, if it has one.
    pub(super) fn answers(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let places = self.arena.chunks_exact(self.stride);
        let answered = self.slots.iter().zip(places);
        answered.map(|(slot, place)| Some(&place[..slot.answer? as usize]))
    }
}

/// `LOOPBACK_IFINDEX` of include/net/flow.h: that of `lo` in every network namespace.
const LOOPBACK: u32 = 1;

/// Refuses answers that would never arrive: a frame that is put on the loopback interface has no route,
/// and so a source that must not come from outside (`fib_validate_source`, net/ipv4/fib_frontend.c).
pub(super) fn refuse_loopback(interface: u32) -> Result<(), Error> {
    match interface {
        LOOPBACK => Err(Error::Invalid {
            field: "answers",
            value: "as frames on the loopback interface".to_owned(),
            why: "the kernel takes none whose source is this host; answer by `recvmmsg` or `io_uring`, or \
                  over a veth"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Answers to frames that leave by a packet socket.
#[derive(Debug)]
pub(super) struct FrameAnswers {
    socket: PacketSocket,
    answers: Answers,
    copies: AnswerCopies,
    descriptors: Vec<PacketDescriptor>,
}

impl FrameAnswers {
    /// Answers for up to `batch` frames of an interface.
    pub(super) fn open(interface: &ListenedInterface, batch: usize) -> Result<Self, Error> {
        refuse_loopback(interface.index)?;
        if interface.index == 0 {
            let why = "a frame leaves by one interface: name it by `ring.interface`";
            return Err(Error::invalid("answers", "on all interfaces", why));
        }
        let socket = PacketSocket::new(&interface.name)?;
        socket.set_send_timeout(SEND_TIMEOUT)?;
        // It receives nothing.
        socket.bind(Protocol::None, interface.index)?;
        let stride = link::of(interface.index)?.mtu as usize + ETHERNET_BYTES;
        Ok(Self {
            socket,
            answers: Answers::of_frames(batch, stride),
            copies: AnswerCopies::new(batch, stride),
            descriptors: Vec::with_capacity(batch),
        })
    }

    /// Has `answer` say what is to be sent of each frame, and sends that.
    pub(super) fn serve(
        &mut self,
        batch: &Batch<'_>,
        answer: &mut dyn FnMut(Requests<'_>),
        wait: Wait,
    ) -> io::Result<Served> {
        self.copies.ask(batch, Layer::Frame, answer);
        let AnswerCopies { arena, slots, .. } = &self.copies;
        self.descriptors.clear();
        self.descriptors.extend(slots.iter().map(PacketSlot::lying));
        let lying = Batch::new(arena, &self.descriptors);
        let socket = self.socket.as_fd();
        self.answers.send(socket, &lying, slots, None, wait)
    }
}

/// Passes answers `0..ready` to the kernel by `call(from)`. An error of one answer concerns only
/// its client, who may have made up a source port of zero. Only a socket that is none any more is
/// an error. Returns how many were taken, and how many were not.
fn send_answers(
    ready: usize,
    mut call: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<(u64, u64)> {
    let (mut at, mut sent) = (0, 0);
    while at < ready {
        match call(at) {
            Ok(taken) => {
                sent += taken as u64;
                at += taken;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // There was no room in time: the others would wait as long, each of them.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // EBADF, ENOTSOCK.
            Err(error) if matches!(error.raw_os_error(), Some(9 | 88)) => return Err(error),
            Err(_) => at += 1,
        }
    }
    Ok((sent, ready as u64 - sent))
}
