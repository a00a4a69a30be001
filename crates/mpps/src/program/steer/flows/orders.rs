//! Commands by which another host sends named flows.

use anyhow::{Result, ensure};
use mpps_host::rss::Flow;

/// Datagrams a second: few enough for a tap, which takes a flow's only one for missing if it loses that.
const RATE: u32 = 10_000;
/// Fewest datagrams: what else arrives meanwhile is to be little beside them.
const DATAGRAMS_MIN: u32 = 5000;

/// How long they take to be sent, in seconds, at most.
pub(super) fn seconds(first: &[Flow], each: u32) -> u64 {
    let flows = u64::from(each) * first.len() as u64;
    flows.max(DATAGRAMS_MIN.into()).div_ceil(RATE.into())
}

/// A command for each of these flows, which sends as many datagrams of it as of each that counts up from it.
///
/// # Errors
/// So many source ports there are not.
pub(super) fn of(first: &[Flow], each: u32, sender: Option<&str>) -> Result<Vec<String>> {
    let orders = first.iter().map(|flow| {
        let (port, to) = (flow.source.port(), flow.destination);
        let most = u32::from(u16::MAX) - u32::from(port) + 1;
        ensure!(
            each <= most,
            "--flows {each}: to be sent they have to be of one source address, which from port {port} on \
             has {most}"
        );
        let sender = sender.unwrap_or("mpps send");
        let flows = each.saturating_mul(first.len() as u32);
        let count = each * (DATAGRAMS_MIN / flows).max(1);
        Ok(format!(
            "{sender} {to} --source-port {port} --flows {each} --count {count} --batch 1 --rate {RATE}"
        ))
    });
    orders.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_all_ports_or_is_none() {
        let first = ["10.0.0.1:65000-10.0.0.2:4321".parse().expect("a flow")];
        let orders = of(&first, 500, Some("ssh far mpps send")).expect("they fit");
        assert!(of(&first, 536, None).is_ok());
        let order = "ssh far mpps send 10.0.0.2:4321 --source-port 65000 --flows 500 --count 5000 --batch 1 --rate 10000";
        assert_eq!(orders, [order]);
        let refused = of(&first, 537, None).expect_err("65536 is none");
        assert!(
            refused.to_string().starts_with("--flows 537: "),
            "{refused}"
        );
    }
}
