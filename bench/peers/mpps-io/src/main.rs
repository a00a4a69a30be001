//! Echo and drop on `mpps-io`, by any of its backends.

use mpps_io::{RxConfig, Wait, backend};
use peer_common::{Args, Mode, PATIENCE, RECEIVE_BUFFER_BYTES, Run};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;
    let mut config = RxConfig::new(args.address.into());
    config.answers = args.mode == Mode::Echo;
    if args.backend != "af_xdp" {
        config.receive_buffer_bytes = Some(RECEIVE_BUFFER_BYTES);
    }
    let mut rx = backend::find(&args.backend)?.open_rx(&config)?;
    let wait = match args.wait.as_str() {
        "block" => Wait::Block(PATIENCE),
        _ => Wait::Auto(PATIENCE),
    };
    let run = Run::start("mpps-io", &args)?;
    while run.goes_on() {
        if args.mode == Mode::Drop {
            run.add(rx.recv(wait)?.datagrams(), 0);
            continue;
        }
        let served = rx.serve(wait, &mut |requests| {
            for request in requests {
                request.reply_in_place(|_room, bytes| Some(bytes));
            }
        })?;
        run.add(served.received, served.sent);
    }
    run.finish()
}
