//! Fuzzed input from the network.

use mpps::command::steer::frames_of_capture;
use mpps_io::{FlowTable, Stamp, wire};

/// Payloads of any content: each begins with its length, in one byte.
pub(crate) fn stamp(mut data: &[u8]) -> Option<()> {
    let mut table = FlowTable::new();
    let (mut payloads, mut stamped) = (0, 0);
    while let Some((length, rest)) = data.split_first() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        payloads += 1;
        if let Some(stamp) = Stamp::read(payload) {
            stamped += 1;
            let mut written = payload.to_vec();
            stamp.write(&mut written);
            let again = Stamp::read(&written);
            assert_eq!(again, Some(stamp), "a stamp is read as it was written");
        }
        // Any clock: behind the sender's, ahead of it, wrapped.
        let now_ns = payload.iter().rev().take(8);
        let now_ns = now_ns.fold(0, |now, byte| now << 8 | u64::from(*byte));
        table.record(payload, now_ns);
    }
    let mut counted = table.unstamped() + table.untracked() + table.end_markers();
    let mut twice = None;
    for (_, report) in table.reports() {
        counted += report.received;
        assert!(report.duplicates + report.too_late <= report.received);
        let decided = report.decide(1);
        assert!(decided.undecided <= decided.lost);
        assert!(decided.duplicates + decided.undecided <= report.received);
        let merged = twice.get_or_insert_with(|| report.clone());
        merged.merge(report);
        let _ = merged.lost();
    }
    assert_eq!(counted, payloads, "every datagram is counted once");
    (stamped > 0).then_some(())
}

/// A capture of any content, and the datagrams in its frames.
pub(crate) fn capture(data: &[u8]) -> Option<()> {
    let mut bytes = 0;
    let read = frames_of_capture(data, |frame, _| {
        bytes += frame.len();
        let datagram = wire::datagram(frame);
        let payload = datagram.map_or(0, |datagram| datagram.payload.len());
        assert!(payload <= frame.len(), "a datagram is within its frame");
    });
    assert!(bytes <= data.len(), "frames are within their capture");
    read.ok().map(drop)
}
