//! Echo and drop on tokio's `UdpSocket`, in a runtime of one thread.

use peer_common::{Args, Mode, PATIENCE, RECEIVE_BUFFER_BYTES, Run};
use socket2::SockRef;
use std::error::Error;
use std::io;
use tokio::net::UdpSocket;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;
    let socket = UdpSocket::bind(args.address).await?;
    SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    let run = Run::start("tokio", &args)?;
    tokio::select! {
        ended = serve(&socket, args.mode, &run) => ended?,
        () = over(&run) => {}
    }
    run.finish()
}

async fn serve(socket: &UdpSocket, mode: Mode, run: &Run) -> io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        let (bytes, sender) = socket.recv_from(&mut buffer).await?;
        // An answer that cannot leave is lost, and ends no server.
        let sent = mode == Mode::Echo && socket.send_to(&buffer[..bytes], sender).await.is_ok();
        run.add(1, u64::from(sent));
    }
}

async fn over(run: &Run) {
    while run.goes_on() {
        tokio::time::sleep(PATIENCE).await;
    }
}
