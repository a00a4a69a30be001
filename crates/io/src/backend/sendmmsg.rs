//! `sendmmsg(2)`: many datagrams a call, as the article's sender does it, and trains with GSO.

use super::Backend;
use super::send::{SendCall, SocketTx};
use super::socket::open_senders;
use crate::{Error, Tx, TxConfig};

pub(super) const BACKEND: Backend = Backend {
    name: "sendmmsg",
    summary: "many datagrams a call to an ordinary socket, trains with GSO",
    tx: Some(open_tx),
    ..super::send::BACKEND
};

fn open_tx(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let (sockets, caps) = open_senders(&BACKEND, config)?;
    let call: SendCall = |messages, socket, from, to| messages.send(socket, from..to, true);
    Ok(Box::new(SocketTx::new(config, sockets, caps, call)?))
}
