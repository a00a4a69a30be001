//! A socket of quinn over `mpps-io`.

mod socket;

pub use socket::QuicSocket;
