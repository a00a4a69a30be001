//! When the card interrupts, and when the kernel polls.

use super::{Aim, JudgedStage, Tunables, TuneGoal, Wanted};
use crate::setting::{Setting, Value, coalescings};
use mpps_os::ethtool::coalesce::Coalescing;
use std::convert::Infallible;

/// How long a card may wait before it interrupts: 25 000 interrupts a second, which leave most of a CPU
/// to its packets, and a delay that sockets do not notice.
const WAIT_US: u32 = 40;

pub(super) fn coalescing(tunables: &Tunables, _: Aim) -> JudgedStage {
    let read = |setting: &Setting| tunables.value(setting).map(Value::coalescing);
    let Ok(all) = coalescings(
        |setting| Ok::<_, Infallible>(read(setting).flatten()),
        |queue| queue < tunables.tx_queues,
    );
    if all.is_empty() {
        let why = "its driver does not let the card wait";
        return Wanted::Impossible.because(why);
    }
    let pause = tunables.ring_us_at_a_million();
    let is_wrong = |now: &Coalescing| {
        let time_us = now.rx_time_us();
        let is_long = pause.is_some_and(|pause| u64::from(time_us) * 4 >= pause);
        !now.is_adaptive_rx() && (time_us == 0 || is_long)
    };
    let fixed = |chosen: &dyn Fn(&Coalescing) -> bool| {
        let chosen = all.iter().filter(|(_, now)| chosen(now));
        let fixed = chosen.map(|(setting, now)| {
            let words = now.with_rx_time_us(WAIT_US).words();
            (setting.clone(), Value::Numbers(words))
        });
        fixed.collect()
    };
    let who = ["the card", "a queue"][usize::from(all.len() > 1)];
    if let Some((_, wrong)) = all.iter().find(|(_, now)| is_wrong(now)) {
        let why = match wrong.rx_time_us() {
            0 => format!("{who} interrupts for each packet"),
            now => format!("{who} waits {now} µs; 1 Mpps nearly fills its ring in that time"),
        };
        return Wanted::Settings(fixed(&is_wrong)).because(why);
    }
    if all.iter().any(|(_, now)| now.is_adaptive_rx()) {
        let why = "the driver adapts it to the traffic, late after each change";
        return Wanted::Try(fixed(&Coalescing::is_adaptive_rx)).because(why);
    }
    let most = all.iter().map(|(_, now)| now.rx_time_us()).max();
    let why = format!(
        "{who} waits {} µs, and its ring lasts far longer",
        most.unwrap_or(0)
    );
    Wanted::Settings(Vec::new()).because(why)
}

/// AF_XDP that polls the driver itself needs interrupts out of its way; the reader of a socket waits
/// for them, and a short pause may save some.
pub(super) fn deferral(tunables: &Tunables, aim: Aim) -> JudgedStage {
    let is_polled = aim.goal == TuneGoal::AfXdp;
    let (time_ns, rounds) = match is_polled {
        true => (200_000, 2),
        false => (20_000, 1),
    };
    let files = [
        ("gro_flush_timeout", time_ns),
        ("napi_defer_hard_irqs", rounds),
    ];
    let settings = files.map(|(name, value)| (Setting::file(name), Value::Number(value)));
    if settings
        .iter()
        .any(|(setting, _)| tunables.value(setting).is_none())
    {
        return Wanted::Impossible.because("this kernel does not defer interrupts (Linux 5.8)");
    }
    let set = |(setting, _): &(Setting, Value)| tunables.number(setting).is_some_and(|now| now > 0);
    if settings.iter().all(set) {
        return Wanted::Settings(Vec::new()).because("interrupts are deferred");
    }
    match is_polled {
        true => {
            let why = "a receiver with --busy-poll polls the driver, and interrupts poll beside it";
            Wanted::Settings(settings.into()).because(why)
        }
        false => {
            let why = "a pause of 20 µs before the next interrupt makes larger batches, and delays";
            Wanted::Try(settings.into()).because(why)
        }
    }
}

/// It belongs to a program that polls, and to its sockets.
pub(super) fn suspension(_: &Tunables, aim: Aim) -> JudgedStage {
    if aim.goal == TuneGoal::Tcp {
        let why = "mpps receives TCP by epoll without it";
        return Wanted::NotNeeded.because(why);
    }
    let port = aim.port.map_or("PORT".to_owned(), |port| port.to_string());
    let backend = match aim.goal {
        TuneGoal::AfXdp => " --backend af_xdp",
        _ => "",
    };
    let polling = "--wait epoll --busy-poll 64 --suspend-irqs 20ms";
    let command = format!("mpps recv ADDR:{port}{backend} {polling}");
    let why = "a program that polls in epoll_wait(2) can keep interrupts off while packets come (Linux \
               6.13); recv sets that and puts it back";
    Wanted::ByHand(vec![command], &[]).because(why)
}

/// A kernel thread of each queue is scheduled as programs are, and soft interrupts are not.
pub(super) fn threads(tunables: &Tunables, _: Aim) -> JudgedStage {
    let setting = Setting::file("threaded");
    match tunables.number(&setting) {
        None => Wanted::Impossible.because("this kernel has no threaded NAPI (Linux 5.12)"),
        Some(0) => {
            let why = "soft interrupts come before every program of their CPU: with more packets than \
                       it can take, the reader gets none; a thread shares the CPU, and costs wake-ups";
            Wanted::Try(vec![(setting, Value::Number(1))]).because(why)
        }
        Some(_) => Wanted::Settings(Vec::new()).because("its queues have threads"),
    }
}
