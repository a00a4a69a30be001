//! The library that `mpps accelerate` preloads into a program: its UDP socket receives and sends by
//! AF_XDP, and stays a socket of the kernel.
//!
//! The library replaces calls of the C library (`calls`). A call about another descriptor goes to
//! the kernel as it is. A datagram that is not in a ring is the kernel's, too: fragments, other
//! interfaces, and all of them after the launcher ended.
//!
//! No other crate may use this one: its symbols would take the place of the C library's. `mpps`
//! depends on it, so that a plain build makes it.
#![allow(
    unsafe_code,
    reason = "calls of the C library hand over addresses, and their names must be those"
)]

mod calls;
mod epoll;
mod frame;
mod kernel;
mod poll;
mod receive;
mod send;
mod session;
mod socket;
