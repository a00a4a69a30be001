//! Commands that make another host send named flows.

use anyhow::{Result, ensure};
use mpps_host::facts::rss::RssFlow;

/// Datagrams a second: few enough for a tap, which takes a flow's only one for missing if it loses that.
const RATE: u32 = 10_000;
/// Fewest datagrams, so that other arrivals are few in comparison.
const DATAGRAMS_MIN: u32 = 5000;
/// Fewest of each flow: the first ones may be lost while the sender looks for the neighbour.
const EACH_MIN: u32 = 2;

/// Most flows of one command, each a socket. The default limit of descriptors is 1024
/// (`RLIMIT_NOFILE`, getrlimit(2)).
const FLOWS_MAX: u32 = 1000;

/// Commands that send, and how long they take at most.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) commands: Vec<String>,
    pub(super) seconds: u64,
}

impl Orders {
    /// Those that send as many datagrams of each of these flows and of each that counts up from it.
    pub(super) fn new(first: &[RssFlow], each: u32, sender: Option<&str>) -> Result<Self> {
        let sender = sender.unwrap_or("mpps send");
        let flows = each.saturating_mul(first.len() as u32);
        let of_flow = DATAGRAMS_MIN.div_ceil(flows.max(1)).max(EACH_MIN);
        let mut orders = Self::default();
        for flow in first {
            let (first_port, to) = (u32::from(flow.source.port()), flow.destination);
            ensure!(first_port > 0, "{flow}: of port 0 nothing can be sent");
            let most = u32::from(u16::MAX) - first_port + 1;
            ensure!(
                each <= most,
                "--flows {each}: to be sent they have to be of one source address, which from port \
                 {first_port} on has {most}"
            );
            for begun in (0..each).step_by(FLOWS_MAX as usize) {
                let (port, flows) = (first_port + begun, FLOWS_MAX.min(each - begun));
                let count = flows * of_flow;
                orders.commands.push(format!(
                    "{sender} {to} --source-port {port} --flows {flows} --count {count} --batch 1 --rate \
                     {RATE}"
                ));
                // And a second to start it.
                orders.seconds += u64::from(count.div_ceil(RATE)) + 1;
            }
        }
        Ok(orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_have_all_ports_or_there_are_none() {
        let first = ["10.0.0.1:64000-10.0.0.2:4321".parse().expect("a flow")];
        let orders = Orders::new(&first, 1500, Some("ssh far mpps send")).expect("they fit");
        let order = |rest: &str| format!("ssh far mpps send 10.0.0.2:4321 --source-port {rest}");
        assert_eq!(
            orders.commands,
            [
                order("64000 --flows 1000 --count 4000 --batch 1 --rate 10000"),
                order("65000 --flows 500 --count 2000 --batch 1 --rate 10000"),
            ]
        );
        assert!(Orders::new(&first, 1536, None).is_ok());
        let refused = Orders::new(&first, 1537, None).expect_err("65536 is none");
        let told = refused.to_string();
        assert!(told.starts_with("--flows 1537: "), "{told}");
    }
}
