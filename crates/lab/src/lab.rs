//! The lab itself.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{link, qdisc};
use mpps_os::sysfs::Sysfs;

use crate::link::{await_up, carry_single_packets, has_v6, introduce, number_queues, quiet, start};
use crate::placement::QueuePlacement;
use crate::steering::{self, By, LabSteering};
use crate::{Delivery, LabConfig, LabError, LabHost, NapiThread, address};

/// The interfaces are named after their part in a measurement. Both directions are open.
const SENDER_INTERFACE: &str = "mpps-tx";
const RECEIVER_INTERFACE: &str = "mpps-rx";
/// Empty polls before a queue's interrupts are on again: the figure of napi.rst's example.
const DEFERRED_POLLS: u32 = 2;

/// Invalid argument (include/uapi/asm-generic/errno-base.h).
const EINVAL: i32 = 22;

/// Two hosts, joined by a link with several queues. Dropping it removes them; so does the end of
/// the program, however it ends.
#[derive(Debug)]
pub struct Lab {
    steering: Vec<LabSteering>,
    queue_cpus: Vec<usize>,
    threads: Vec<NapiThread>,
    sender_threads: Vec<NapiThread>,
    has_rings: bool,
    in_soft_interrupts: bool,
    unplaced: Option<String>,
    notes: Vec<String>,
    sender: LabHost,
    receiver: LabHost,
}

impl Lab {
    /// Makes the two hosts, and returns when their link is up and nothing moves on it.
    ///
    /// Some settings are refused to an ordinary user: the queue of a packet, the CPU of a queue.
    /// The lab does without them and names them in [`Lab::notes`].
    ///
    /// # Errors
    ///
    /// A configuration that cannot be; no right to make namespaces (an ordinary user calls
    /// [`mpps_os::namespace::become_root_in_user_namespace`] first); a CPU that is not there.
    pub fn new(config: &LabConfig) -> Result<Self, LabError> {
        config.check()?;
        let (sender, receiver, mut notes) = join(config)?;
        for host in [&sender, &receiver] {
            let must = config.back_pressure && config.queues > 1;
            let numbered = host.run(|| must.then(|| number_queues(host.interface_index())))?;
            let refused = numbered.and_then(Result::err);
            notes.extend(refused.map(|error| format!("a full queue may stay full: {error}")));
        }

        for host in [&sender, &receiver] {
            notes.extend(host.run(|| carry_single_packets(host.interface()))?);
            if config.back_pressure {
                let index = host.interface_index();
                host.run(|| qdisc::set_first_in_first_out(index, config.queues))??;
            }
        }
        let placement = receiver.run(|| {
            QueuePlacement::new(receiver.interface(), receiver.interface_index(), config)
        })??;
        let is_unplaced = placement.cpus.is_empty() && !placement.notes.is_empty();
        let unplaced = is_unplaced.then(|| placement.notes.join("; "));
        notes.extend(placement.notes);
        let answers = answers(&sender, config)?;
        notes.extend(answers.notes);

        let mut steering = Vec::new();
        let both = [(&sender, By::Source), (&receiver, By::Destination)];
        let one = [(&sender, By::Destination)];
        let is_two_way = !config.sender_queue_cpus.is_empty();
        for (host, by) in if is_two_way { &both[..] } else { &one[..] } {
            match steer(host, *by, config.queues)? {
                Ok(steered) => steering.push(steered),
                Err(why) => {
                    notes.push(why);
                    break;
                }
            }
        }
        let lab = Self {
            steering,
            queue_cpus: placement.cpus,
            threads: placement.threads,
            sender_threads: answers.threads,
            has_rings: placement.has_rings,
            in_soft_interrupts: placement.in_soft_interrupts,
            unplaced,
            notes,
            sender,
            receiver,
        };
        for host in [&lab.sender, &lab.receiver] {
            host.run(|| await_up(host.interface_index()))??;
        }
        lab.settle()?;
        Ok(lab)
    }

    /// The host that sends.
    pub fn sender(&self) -> &LabHost {
        &self.sender
    }

    /// The host that receives.
    pub fn receiver(&self) -> &LabHost {
        &self.receiver
    }

    /// The settings that this lab does without, and why, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The kernel threads that poll the receiver's queues, in the order of the queues. None if the
    /// queues are not polled by threads.
    pub fn napi_threads(&self) -> &[NapiThread] {
        &self.threads
    }

    /// The kernel threads that poll the sender's queues. None unless
    /// [`LabConfig::sender_queue_cpus`] asks for them.
    pub fn sender_napi_threads(&self) -> &[NapiThread] {
        &self.sender_threads
    }

    /// The receiver's queue for packets to this address; `None` if the kernel chooses. If the
    /// sender has queues too, an address of the sender chooses the queues of both hosts. A
    /// connection then has queues of the same number on both sides.
    pub fn queue_of(&self, address: IpAddr) -> Option<u16> {
        Some(self.steering.first()?.queue(address))
    }

    /// The CPU that delivers packets of this queue to the receiver; `None` if the scheduler
    /// chooses.
    pub fn queue_cpu(&self, queue: u16) -> Option<usize> {
        self.queue_cpus.get(usize::from(queue)).copied()
    }

    /// Why the receive queues do not have the requested CPUs. None if they have them, or if none
    /// were requested.
    pub fn unplaced(&self) -> Option<&str> {
        self.unplaced.as_deref()
    }

    /// True if packets wait in the ring of their receive queue, as they should. False if they go
    /// straight into the backlog of a CPU, because the kernel gave the link no NAPI.
    pub fn has_rings(&self) -> bool {
        self.has_rings
    }

    /// True if the sender's CPU also receives each packet, in a soft interrupt. Either
    /// [`Delivery::SoftInterrupt`] asks for it, or the kernel has no threads for the queues of a
    /// veth (before Linux 5.13).
    pub fn in_soft_interrupts(&self) -> bool {
        self.in_soft_interrupts
    }

    /// Names the queues that a measurement uses. On each CPU, their kernel threads together then
    /// weigh as much as one thread. On a card the queues of a CPU share one `ksoftirqd`. Without
    /// this, a program beside four busy queues would get a fifth of its CPU and not half.
    ///
    /// # Errors
    ///
    /// `EPERM` or `EACCES` where the threads are not this user's to set.
    pub fn share_weight(&self, queues: &[u16]) -> Result<(), LabError> {
        Ok(crate::placement::share_weight(&self.threads, queues)?)
    }

    /// Lets receivers poll the queues themselves, without the kernel polling beside them. After
    /// each poll the kernel waits for `time` before it polls again by itself. The settings are
    /// `gro_flush_timeout` and `napi_defer_hard_irqs` (Documentation/networking/napi.rst). `None`
    /// sets both to zero, the kernel's default.
    ///
    /// # Errors
    ///
    /// `EACCES` where the interface's settings are not this user's to change.
    pub fn defer_polling(&self, time: Option<Duration>) -> Result<(), LabError> {
        let interface = self.receiver.interface();
        let time_ns = time.map_or(0, |time| time.as_nanos());
        let polls = u32::from(time.is_some()) * DEFERRED_POLLS;
        self.receiver.run(|| {
            let sysfs = Sysfs::mount()?;
            let write = |name: &str, value: String| {
                sysfs.write(&format!("class/net/{interface}/{name}"), &value)
            };
            write("gro_flush_timeout", time_ns.to_string())?;
            write("napi_defer_hard_irqs", polls.to_string())
        })??;
        Ok(())
    }

    /// Sets that time again and again, until `stop`. At every look it passes two figures to `wait`,
    /// which returns the new time. The first is the number of bytes received or sent since the last
    /// look, whichever is more. The second is the time since then.
    ///
    /// # Errors
    ///
    /// As [`Lab::defer_polling`], which is to be called first.
    pub fn adapt_polling(
        &self,
        stop: &AtomicBool,
        look: Duration,
        mut wait: impl FnMut(u64, Duration) -> Duration + Send,
    ) -> Result<(), LabError> {
        let class = format!("class/net/{}", self.receiver.interface());
        self.receiver.run(|| {
            let sysfs = Sysfs::mount()?;
            let read = |name: &str| {
                let text = sysfs.read(&format!("{class}/statistics/{name}"))?;
                Ok::<u64, mpps_os::CallError>(text.parse().unwrap_or(0))
            };
            let bytes = || Ok::<_, mpps_os::CallError>([read("rx_bytes")?, read("tx_bytes")?]);
            let (mut then, mut at, mut set) = (bytes()?, Instant::now(), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(look);
                let (now, passed) = (bytes()?, at.elapsed());
                let [come, gone] = [0, 1].map(|way| now[way].saturating_sub(then[way]));
                (then, at) = (now, Instant::now());
                let time = wait(come.max(gone), passed);
                if time != set {
                    let path = format!("{class}/gro_flush_timeout");
                    sysfs.write(&path, &time.as_nanos().to_string())?;
                    set = time;
                }
            }
            Ok::<_, mpps_os::CallError>(())
        })??;
        Ok(())
    }

    /// Waits until no packet moves any more in either host, up to five seconds. A packet that waits
    /// in a socket does not move.
    ///
    /// # Errors
    ///
    /// Packets still moved after five seconds.
    pub fn settle(&self) -> Result<(), LabError> {
        let threads: Vec<NapiThread> = self
            .threads
            .iter()
            .chain(&self.sender_threads)
            .copied()
            .collect();
        crate::settle::settle([&self.sender, &self.receiver], &threads)
    }
}

/// Makes the two hosts and the link between them. Also returns notes on refused settings.
fn join(config: &LabConfig) -> Result<(LabHost, LabHost, Vec<String>), LabError> {
    let sender = NetNamespace::new()?;
    let receiver = NetNamespace::new()?;
    let mut notes = Vec::new();
    let mut has_v6_both = true;
    let mut refused = None;
    for namespace in [&sender, &receiver] {
        let (quieted, v6) = namespace.run(|| (quiet(), has_v6()))?;
        has_v6_both &= v6;
        refused = refused.or(quieted.err());
    }
    if !has_v6_both {
        notes.push("no IPv6: this machine has it switched off".to_owned());
    }
    let is_silenced = refused.is_some();
    notes.extend(refused.map(|error| {
        format!(
            "the hosts do without neighbour discovery, because {error}: an address that is added later \
             needs `ip neighbour add`"
        )
    }));
    let prepare = |interface| -> Result<_, LabError> {
        let (index, hardware) = prepare(interface, config.mtu)?;
        if is_silenced {
            link::silence(index, has_v6_both)?;
        }
        Ok((index, hardware))
    };

    let (sender_index, sender_hardware) = sender.run(|| {
        link::create_veth(
            SENDER_INTERFACE,
            config.queues,
            RECEIVER_INTERFACE,
            config.queues,
            std::os::fd::AsFd::as_fd(&receiver),
        )?;
        prepare(SENDER_INTERFACE)
    })??;
    let (receiver_index, receiver_hardware) = receiver.run(|| prepare(RECEIVER_INTERFACE))??;

    let sender = LabHost::new(
        "sender",
        SENDER_INTERFACE,
        sender_index,
        sender,
        address::sender(config.sender_addresses).unwrap_or(address::SENDER),
        has_v6_both,
    );
    let receiver = LabHost::new(
        "receiver",
        RECEIVER_INTERFACE,
        receiver_index,
        receiver,
        address::RECEIVER,
        has_v6_both,
    );
    for (host, other, hardware) in [
        (&sender, &receiver, receiver_hardware),
        (&receiver, &sender, sender_hardware),
    ] {
        let index = host.interface_index();
        host.run(|| introduce(index, addresses(host), addresses(other), &hardware))??;
    }
    for host in [&sender, &receiver] {
        host.run(|| start(host.interface_index()))??;
    }
    Ok((sender, receiver, notes))
}

/// Makes an address choose the queue of each frame that a host sends, or returns why it does not.
fn steer(host: &LabHost, by: By, queues: u16) -> Result<Result<LabSteering, String>, LabError> {
    let steered = host.run(|| steering::attach(host.interface_index(), by, queues))?;
    Ok(steered.map_err(|error| {
        // A kernel that does not know the attachment returns this error.
        let hint = match error.errno() {
            Some(EINVAL) => "; another choice needs TCX, of Linux 6.6",
            _ => "",
        };
        format!("the kernel chooses the queue of each flow: {error}{hint}")
    }))
}

/// Gives the sender's queues their threads, or their CPUs, where packets go both ways.
fn answers(sender: &LabHost, config: &LabConfig) -> Result<QueuePlacement, LabError> {
    if config.sender_queue_cpus.is_empty() {
        return Ok(QueuePlacement::default());
    }
    let config = LabConfig {
        queue_cpus: config.sender_queue_cpus.clone(),
        delivery: match config.delivery {
            Delivery::Rps => Delivery::Rps,
            _ => Delivery::ThreadedNapi,
        },
        ..config.clone()
    };
    let (interface, index) = (sender.interface(), sender.interface_index());
    sender.run(|| QueuePlacement::new(interface, index, &config))?
}

/// The number and the hardware address of an interface, which gets its MTU.
fn prepare(interface: &str, mtu: u32) -> Result<(u32, Vec<u8>), LabError> {
    let index = link::index(interface)?;
    link::set_mtu(index, mtu)?;
    let hardware = link::find(index)?;
    Ok((index, hardware.map_or_else(Vec::new, |link| link.address)))
}

fn addresses(host: &LabHost) -> impl Iterator<Item = IpAddr> {
    let v4 = host.v4().iter().copied().map(IpAddr::V4);
    v4.chain(host.v6().iter().copied().map(IpAddr::V6))
}
