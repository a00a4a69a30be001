//! `recvmmsg(2)`: many datagrams a call, as the article's receiver does it.

use super::Backend;
use super::socket::open_receiver;
use crate::{Error, Rx, RxConfig};
use mpps_os::messages::ReceiveMessages;

use super::recv::SocketRx;

pub(super) const BACKEND: Backend = Backend {
    name: "recvmmsg",
    summary: "many datagrams a call from an ordinary socket",
    rx: Some(open_rx),
    ..super::recv::BACKEND
};

fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let (socket, caps) = open_receiver(&BACKEND, config)?;
    let call = ReceiveMessages::receive;
    let rx = SocketRx::new(&BACKEND, socket, caps, config, call)?;
    Ok(Box::new(rx))
}
