//! `mpps send`: arguments → plan.

use super::{CommandEnding, backend, pinned};
use crate::program::send::{SendArgs, SendPlan};
use anyhow::{Result, ensure};
use mpps_io::{Backend, RingConfig, STAMP_BYTES, TxConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Large, so that a slow receiver does not slow the sender: in-flight packets stay charged to the
/// sending socket.
const SEND_BUFFER_BYTES: usize = 32 << 20;

/// Sends until the count, the time or Ctrl-C.
pub(super) fn run(args: SendArgs) -> Result<CommandEnding> {
    plan(args)?.run()
}

fn plan(args: SendArgs) -> Result<SendPlan> {
    let threads = args.threads.map_or(args.targets.len(), usize::from);
    ensure!(
        threads >= args.targets.len(),
        "--threads {threads}: there are {} targets, and each needs a thread of its own",
        args.targets.len()
    );
    ensure!(
        threads <= 127,
        "{threads} targets: 127 sending threads are the most"
    );
    ensure!(
        usize::from(args.sender) + threads <= 128,
        "--sender {}: {threads} threads have numbers up to 127; use a lower one",
        args.sender
    );
    ensure!(
        !args.stamp || args.size >= STAMP_BYTES,
        "--stamp needs --size {STAMP_BYTES} or more, not {}",
        args.size
    );
    let pin = pinned(args.pin.as_ref())?;
    if let Some(rate) = args.rate {
        ensure!(
            rate / threads as f64 >= 1e-3,
            "--rate {rate}: less than a packet in 1000 s"
        );
    }
    let backend = backend(&args.backend, false)?;
    let target = |thread: usize| args.targets[thread % args.targets.len()];
    let configs =
        (0..threads).map(|thread| config(&args, backend, threads, thread, target(thread)));
    Ok(SendPlan {
        backend,
        configs: configs.collect(),
        pin,
        lines: args.json.begin()?,
        asked: args,
    })
}

/// The configuration of one thread.
fn config(
    args: &SendArgs,
    backend: &Backend,
    threads: usize,
    thread: usize,
    target: SocketAddr,
) -> TxConfig {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let honours = |field| backend.tx_fields.contains(&field);
    let own = u32::try_from(thread).ok();
    TxConfig {
        source: Some(SocketAddr::new(any, args.source_port)),
        flows: args.flows,
        payload_bytes: args.size,
        batch: batch(args, threads),
        gso_segments: args.gso,
        connect: !args.no_connect,
        // The size that was asked for, or plenty if the backend has a socket.
        send_buffer_bytes: args
            .sndbuf
            .or(honours("send_buffer_bytes").then_some(SEND_BUFFER_BYTES)),
        ring: RingConfig {
            target_mac: args.target_mac,
            // A queue each where one can be chosen: two rings on one are refused.
            queue: match args.ring.queue {
                None if thread == 0 || !honours("ring.queue") => None,
                first => own.and_then(|own| own.checked_add(first.unwrap_or(0))),
            },
            ..args.ring.config()
        },
        ..TxConfig::new(target)
    }
}

/// Datagrams a call: so few that every flow has its turn where there are few to send.
fn batch(args: &SendArgs, threads: usize) -> usize {
    let Some(count) = args.count.filter(|_| args.flows > 1) else {
        return args.batch;
    };
    let turns = (threads * args.flows * usize::from(args.gso.max(1))) as u64;
    let each = usize::try_from(count.div_ceil(turns.max(1))).unwrap_or(usize::MAX);
    args.batch.min(each.max(1))
}
