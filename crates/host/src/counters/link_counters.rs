//! The counters that every interface has.

use mpps_os::netlink::link::LinkStatistics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defines the structure from one list of fields, so that reading, subtracting and checking
/// cannot forget one of them.
macro_rules! link_counters {
    ($($(#[$text:meta])* $name:ident,)*) => {
        /// Counters of an interface: absolute ones as `LinkCounters<u64>`, differences as
        /// `LinkCounters<i64>` (`IFLA_STATS64`, include/uapi/linux/if_link.h).
        ///
        /// The unit is the packet buffer: with segmentation or receive offload it can be a train
        /// of datagrams.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub struct LinkCounters<T> {
            $($(#[$text])* pub $name: T,)*
        }

        impl From<LinkStatistics> for LinkCounters<u64> {
            fn from(kernel: LinkStatistics) -> Self {
                Self { $($name: kernel.$name,)* }
            }
        }

        impl LinkCounters<i64> {
            /// Adds those of another interface.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }

        impl LinkCounters<u64> {
            /// The counter of this name.
            pub(crate) fn value(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// The growth since `earlier`. `went_back` gets the name and both values of each
            /// counter that went back.
            pub(crate) fn since(
                &self,
                earlier: &Self,
                mut went_back: impl FnMut(&str, u64, u64),
            ) -> LinkCounters<i64> {
                $(if self.$name < earlier.$name {
                    went_back(stringify!($name), earlier.$name, self.$name);
                })*
                LinkCounters { $($name: difference(earlier.$name, self.$name),)* }
            }
        }
    };
}

link_counters! {
    /// Packets received and given to the kernel.
    rx_packets,
    /// Packets transmitted.
    tx_packets,
    /// Bytes received.
    rx_bytes,
    /// Bytes transmitted.
    tx_bytes,
    /// Bad packets received, all kinds.
    rx_errors,
    /// Packets that could not be transmitted for an error.
    tx_errors,
    /// Packets received and dropped before any protocol saw them, the backlog's drops included.
    rx_dropped,
    /// Packets dropped on their way out.
    tx_dropped,
    /// Multicast packets received.
    multicast,
    /// Received packets of a wrong length.
    rx_length_errors,
    /// Received packets that found no room in the receiver.
    rx_over_errors,
    /// Received packets with a bad check sum.
    rx_crc_errors,
    /// Received packets that were not aligned.
    rx_frame_errors,
    /// Received packets lost in the hardware's own queue.
    rx_fifo_errors,
    /// Received packets that the host was too slow to take.
    rx_missed_errors,
    /// Transmissions given up.
    tx_aborted_errors,
    /// Transmissions without a carrier.
    tx_carrier_errors,
    /// Transmissions lost in the hardware's own queue.
    tx_fifo_errors,
    /// Received packets without a registered protocol, or on an inactive port.
    rx_nohandler,
    /// Received packets meant for the hardware address of another host.
    rx_otherhost_dropped,
}

impl LinkCounters<u64> {
    /// The receive errors that none of the counters of their kinds has.
    pub(crate) fn rx_errors_beyond_parts(&self) -> u64 {
        let parts = [
            self.rx_length_errors,
            self.rx_over_errors,
            self.rx_crc_errors,
            self.rx_frame_errors,
            self.rx_fifo_errors,
            self.rx_missed_errors,
        ];
        parts
            .iter()
            .fold(self.rx_errors, |rest, part| rest.saturating_sub(*part))
    }
}

/// `later - earlier` with its sign. Exact for any two counters less than 2^63 apart.
pub(crate) fn difference(earlier: u64, later: u64) -> i64 {
    later.wrapping_sub(earlier).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_sign_and_steps_back_are_told() {
        let earlier = LinkCounters {
            rx_packets: 10,
            tx_dropped: 7,
            ..LinkCounters::default()
        };
        let later = LinkCounters {
            rx_packets: 15,
            tx_dropped: 4,
            ..LinkCounters::default()
        };
        let mut told = Vec::new();
        let delta = later.since(&earlier, |name, from, to| {
            told.push((name.to_owned(), from, to))
        });
        assert_eq!((delta.rx_packets, delta.tx_dropped), (5, -3));
        assert_eq!(told, [("tx_dropped".to_owned(), 7, 4)]);
    }

    #[test]
    fn every_counter_of_the_kernel_is_taken_from_its_own_field() {
        let mut kernel = LinkStatistics::default();
        (kernel.rx_packets, kernel.rx_missed_errors) = (1, 2);
        kernel.tx_dropped = 3;
        let counters = LinkCounters::from(kernel);
        assert_eq!(
            (
                counters.rx_packets,
                counters.rx_missed_errors,
                counters.tx_dropped
            ),
            (1, 2, 3)
        );
        let named = ["rx_missed_errors", "tx_dropped", "rx_misses"];
        let named = named.map(|name| counters.value(name));
        assert_eq!(named, [Some(2), Some(3), None]);
    }

    #[test]
    fn errors_of_no_kind_are_what_the_sum_has_beyond_them() {
        let of = |rx_errors, rx_frame_errors, rx_length_errors| {
            let counters = LinkCounters {
                rx_errors,
                rx_frame_errors,
                rx_length_errors,
                ..LinkCounters::default()
            };
            counters.rx_errors_beyond_parts()
        };
        assert_eq!([of(9, 2, 3), of(5, 2, 3), of(0, 2, 0)], [4, 0, 0]);
    }
}
