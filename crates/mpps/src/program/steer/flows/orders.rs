//! Commands by which another host sends named flows.

use anyhow::{Result, ensure};
use mpps_host::rss::Flow;

/// Datagrams a second: few enough for a tap, which takes a flow's only one for missing if it loses that.
const RATE: u32 = 10_000;

/// A command for each of these flows, which sends one datagram of it and of each that counts up from it.
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
        Ok(format!(
            "{sender} {to} --source-port {port} --flows {each} --count {each} --rate {RATE}"
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
        let orders = of(&first, 536, Some("ssh far mpps send")).expect("they fit");
        let order = "ssh far mpps send 10.0.0.2:4321 --source-port 65000 --flows 536 --count 536 --rate 10000";
        assert_eq!(orders, [order]);
        let refused = of(&first, 537, None).expect_err("65536 is none");
        assert!(
            refused.to_string().starts_with("--flows 537: "),
            "{refused}"
        );
    }
}
