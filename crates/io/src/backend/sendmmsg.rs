//! `sendmmsg(2)`: many datagrams a call, as the article's sender does it, and trains with GSO.

use super::send::SocketTx;
use super::socket::{SOCKET_TX_OPTIONS, open_senders};
use super::{Backend, Layer, Support};
use crate::{Error, Tx, TxConfig};
use mpps_os::messages::SendMessages;

pub(super) const BACKEND: Backend = Backend {
    name: "sendmmsg",
    summary: "many datagrams a call to an ordinary socket, trains with --gso",
    needs: "Linux 5.10",
    layer: Layer::Payload,
    takes_nic: false,
    in_process: false,
    probe: || Support::Yes,
    rx_options: &[],
    tx_options: SOCKET_TX_OPTIONS,
    rx: None,
    tx: Some(open_tx),
};

fn open_tx(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let (sockets, caps) = open_senders(&BACKEND, config)?;
    Ok(Box::new(SocketTx::new(
        config,
        sockets,
        caps,
        SendMessages::send,
    )))
}
