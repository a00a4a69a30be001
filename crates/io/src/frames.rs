//! Frames to write payloads into, lent by the sender until the next call.

use std::slice::ChunksMut;

/// Payload buffers of the next datagrams, in the order of sending.
///
/// ```
/// use mpps_io::Frames;
///
/// // Two messages 8 bytes apart, each a train of two payloads of three bytes.
/// let mut arena = [0; 16];
/// for (number, payload) in (1..).zip(Frames::new(&mut arena, 8, 6, 3, 4)) {
///     payload.fill(number);
/// }
/// assert_eq!(arena, [1, 1, 1, 2, 2, 2, 0, 0, 3, 3, 3, 4, 4, 4, 0, 0]);
/// ```
#[derive(Debug)]
pub struct Frames<'a> {
    messages: ChunksMut<'a, u8>,
    train: ChunksMut<'a, u8>,
    message_bytes: usize,
    payload_bytes: usize,
    left: usize,
}

impl<'a> Frames<'a> {
    /// Frames in `arena`, where a message of `message_bytes` begins every `stride` bytes and holds
    /// payloads of `payload_bytes` one after another.
    pub fn new(
        arena: &'a mut [u8],
        stride: usize,
        message_bytes: usize,
        payload_bytes: usize,
        datagrams: usize,
    ) -> Self {
        Self {
            messages: arena.chunks_mut(stride.max(1)),
            train: <&mut [u8]>::default().chunks_mut(1),
            message_bytes,
            payload_bytes,
            left: datagrams,
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        if let Some(payload) = self.train.next() {
            return Some(payload);
        }
        let message = self.messages.next()?;
        let bytes = self.message_bytes.min(message.len());
        let message = &mut message[..bytes];
        if bytes == 0 {
            return Some(message);
        }
        self.train = message.chunks_mut(self.payload_bytes.max(1));
        self.train.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_through_trains_and_skips_the_padding() {
        let mut arena = [0_u8; 16];
        for (at, payload) in Frames::new(&mut arena, 8, 6, 3, 4).enumerate() {
            payload.fill(at as u8 + 1);
        }
        assert_eq!(arena, [1, 1, 1, 2, 2, 2, 0, 0, 3, 3, 3, 4, 4, 4, 0, 0]);
    }

    #[test]
    fn empty_payloads_count() {
        let mut arena = [0_u8; 8];
        assert_eq!(Frames::new(&mut arena, 4, 0, 0, 2).count(), 2);
    }

    #[test]
    fn hands_out_no_more_than_asked() {
        let mut arena = [0_u8; 64];
        assert_eq!(Frames::new(&mut arena, 8, 8, 8, 3).count(), 3);
    }
}
