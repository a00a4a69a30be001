//! Replies whose bodies are files: a part is read, and then sent.

use super::Loop;
use crate::serve::{Ending, Reply, ReplyBody};
use mpps_os::uring::{Buffer, SendRequest};
use std::sync::Arc;

/// Bytes of a file that are read, and then sent, at a time. A client that takes nothing holds them.
const FILE_BYTES: usize = 32 << 10;
/// Buffers for them that are kept.
const FILE_BUFFERS_KEPT: usize = 16;

impl Loop {
    /// Reads the next part of a file that is a reply's body.
    pub(super) fn read_on(&mut self, slot: u32, reply: Reply) {
        let ReplyBody::File { file, range } = &reply.body else {
            return self.whole(slot);
        };
        let left = range.end.saturating_sub(range.start);
        if left == 0 {
            return self.whole(slot);
        }
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(FILE_BYTES);
        // Those that are kept are of one size.
        let room = if self.buffers { FILE_BYTES } else { bytes };
        let buffer = self.file_buffers.pop();
        let buffer = buffer.unwrap_or_else(|| Buffer::new(room));
        let file = Arc::clone(file);
        let request = self.ring.read(slot, file, range.start, bytes, buffer);
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.request = Some(request);
        client.reply = Some(reply);
    }

    pub(super) fn read(&mut self, slot: u32, buffer: Buffer) {
        if buffer.filled() == 0 {
            // The file is shorter than it was, and its length has been promised.
            self.keep(buffer);
            return self.close(slot, Ending::Error);
        }
        self.send_of_file(slot, buffer, 0);
    }

    fn send_of_file(&mut self, slot: u32, buffer: Buffer, from: usize) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.sent_of_buffer = from;
        let (Some(socket), Some(reply)) = (&client.socket, &client.reply) else {
            return self.keep(buffer);
        };
        let left = match &reply.body {
            ReplyBody::File { range, .. } => range.end.saturating_sub(range.start),
            _ => 0,
        };
        let sending = SendRequest {
            whole: false,
            more: left > (buffer.filled() - from) as u64,
        };
        client.request = Some(self.ring.send_buffer(slot, socket, buffer, from, sending));
    }

    pub(super) fn sent_of_file(
        &mut self,
        slot: u32,
        mut reply: Reply,
        bytes: usize,
        buffer: Buffer,
    ) {
        if let ReplyBody::File { range, .. } = &mut reply.body {
            range.start += bytes as u64;
        }
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let sent = client.sent_of_buffer + bytes;
        if sent < buffer.filled() {
            client.reply = Some(reply);
            return self.send_of_file(slot, buffer, sent);
        }
        self.keep(buffer);
        self.read_on(slot, reply);
    }

    /// Keeps a file's buffer for the next one, if buffers are kept.
    pub(super) fn keep(&mut self, buffer: Buffer) {
        if self.buffers && self.file_buffers.len() < FILE_BUFFERS_KEPT {
            self.file_buffers.push(buffer);
        }
    }
}
