//! The queues of sockets between two looks.

use mpps_os::netlink::sock_diag::UdpEntry;
use std::collections::BTreeMap;

/// The queue of a socket, as several short looks saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCourse {
    /// How many looks there were.
    pub looks: u32,
    /// How many saw it half full or more.
    pub full: u32,
    /// In how many of the intervals that ended with a look it dropped datagrams.
    pub lossy: u32,
    /// The most that it dropped in one interval, in datagrams.
    pub most: u64,
    /// The most that it dropped in intervals without a pause between them.
    pub longest: u64,
    /// How many looks in a row, to the last, saw it with bytes; none if any look saw it smaller than the one before.
    pub unread: u32,
    /// The most intervals in a row that lost datagrams and ended with a full queue.
    pub away: u32,
    /// True if a look saw it smaller than the one before.
    pub is_read: bool,
    /// Its drops and bytes at the last look, and the drops since the last interval without any.
    drops: u32,
    queued: u32,
    now: u64,
    now_away: u32,
}

/// Those of all sockets, by inode number.
pub type QueueCourses = BTreeMap<u32, QueueCourse>;

impl QueueCourse {
    /// Adds a look to the courses of sockets that were there before.
    pub(crate) fn add(courses: &mut QueueCourses, sockets: &[UdpEntry]) {
        for socket in sockets {
            if let Some(course) = courses.get_mut(&socket.inode) {
                course.see(socket);
            }
        }
    }

    /// Begins one for each socket.
    pub(crate) fn begin(sockets: &[UdpEntry]) -> QueueCourses {
        let all = sockets.iter().map(|socket| {
            let course = Self {
                drops: socket.drops,
                queued: socket.queued_bytes,
                ..Self::default()
            };
            (socket.inode, course)
        });
        all.collect()
    }

    fn see(&mut self, socket: &UdpEntry) {
        let lost = u64::from(socket.drops.wrapping_sub(self.drops));
        self.drops = socket.drops;
        self.looks += 1;
        self.full += u32::from(is_full(socket));
        self.lossy += u32::from(lost > 0);
        self.now = match lost {
            0 => 0,
            _ => self.now.saturating_add(lost),
        };
        self.now_away = match lost > 0 && is_full(socket) {
            true => self.now_away + 1,
            false => 0,
        };
        self.away = self.away.max(self.now_away);
        self.most = self.most.max(lost);
        self.longest = self.longest.max(self.now);
        // A program that reads in batches pauses between them.
        self.is_read |= socket.queued_bytes < self.queued;
        self.unread = match socket.queued_bytes > 0 && !self.is_read {
            true => self.unread + 1,
            false => 0,
        };
        self.queued = socket.queued_bytes;
    }
}

/// True if a socket's buffer is half full or more.
pub(crate) fn is_full(socket: &UdpEntry) -> bool {
    socket.queued_bytes >= socket.buffer_bytes / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(inode: u32, drops: u32, queued_bytes: u32) -> UdpEntry {
        UdpEntry {
            local: std::net::SocketAddr::from(([0, 0, 0, 0], 53)),
            remote: None,
            only_v6: false,
            interface: 0,
            inode,
            cookie: inode.into(),
            user: 0,
            queued_bytes,
            buffer_bytes: 100,
            unsent_bytes: 0,
            send_buffer_bytes: 212_992,
            drops,
        }
    }

    #[test]
    fn a_queue_that_shrinks_is_read() {
        for (queues, expected) in [
            (&[50, 50, 60, 60][..], 4),
            (&[0, 10, 10], 0),
            (&[50, 60, 59, 59], 0),
            (&[50, 0], 0),
            (&[0, 0], 0),
        ] {
            let mut courses = QueueCourse::begin(&[socket(7, 0, 50)]);
            for queued in queues {
                QueueCourse::add(&mut courses, &[socket(7, 0, *queued)]);
            }
            assert_eq!(courses[&7].unread, expected, "{queues:?}");
        }
    }

    #[test]
    fn losses_in_a_row_are_one() {
        let mut courses = QueueCourse::begin(&[socket(7, u32::MAX, 0)]);
        for (drops, queued) in [(4, 50), (14, 100), (14, 49), (20, 0)] {
            QueueCourse::add(&mut courses, &[socket(7, drops, queued), socket(8, 9, 100)]);
        }
        let course = courses[&7];
        assert_eq!((course.looks, course.full, course.lossy), (4, 2, 3));
        assert_eq!((course.most, course.longest, course.away), (10, 15, 2));
        assert_eq!(courses.len(), 1, "of a new one the beginning is not known");
    }
}
