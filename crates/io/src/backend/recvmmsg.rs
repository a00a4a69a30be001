//! `recvmmsg(2)`: many datagrams a call, as the article's receiver does it.

use super::socket::{SOCKET_RX_OPTIONS, open_receiver};
use super::{Backend, Layer, Support};
use crate::{Error, Rx, RxConfig};
use mpps_os::messages::ReceiveMessages;

use super::recv::SocketRx;

pub(super) const BACKEND: Backend = Backend {
    name: "recvmmsg",
    summary: "many datagrams a call from an ordinary socket",
    needs: "Linux 5.10",
    layer: Layer::Payload,
    takes_nic: false,
    in_process: false,
    probe: || Support::Yes,
    rx_options: SOCKET_RX_OPTIONS,
    tx_options: &[],
    rx: Some(open_rx),
    tx: None,
};

fn open_rx(config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let (socket, caps) = open_receiver(&BACKEND, config)?;
    Ok(Box::new(SocketRx::new(
        &BACKEND,
        socket,
        caps,
        config.sources,
        ReceiveMessages::receive,
    )))
}
