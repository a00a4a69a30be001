//! Numbers that the kernel writes into bytes in the order of this machine; none beyond the end.

/// The number of 16 bits at a place.
#[inline]
pub(crate) fn half_word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// That of 32 bits.
#[inline]
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// That of 64 bits.
#[inline]
pub(crate) fn double_word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
