//! Measures a QUIC transfer, by the socket of its receiver:
//!
//!     peer-quic server SOCKET ADDRESS CERTIFICATE    serves until it is killed; a line for each connection
//!     peer-quic client ADDRESS CERTIFICATE BYTES     sends by quinn-udp, and then pings
//!
//! SOCKET is `quinn-udp`, or a backend of mpps-io. The server writes CERTIFICATE, and the client trusts it.
#![allow(clippy::print_stdout, reason = "programs speak")]

use peer_quic::QuicSocket;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Round trips that a client makes after its transfer.
const PINGS: usize = 5_000;

#[tokio::main]
async fn main() -> Answer<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["server", socket, address, certificate] => {
            serve(socket, address.parse()?, certificate).await
        }
        ["client", address, certificate, bytes] => {
            transfer(
                address.parse()?,
                &std::fs::read(certificate)?,
                bytes.parse()?,
            )
            .await
        }
        _ => Err("server SOCKET ADDRESS CERTIFICATE | client ADDRESS CERTIFICATE BYTES".into()),
    }
}

/// An endpoint over a socket, and its certificate.
fn endpoint(socket: &str, address: SocketAddr) -> Answer<(Endpoint, CertificateDer<'static>)> {
    let made = rcgen::generate_simple_self_signed(vec!["peer".to_owned()])?;
    let certificate = CertificateDer::from(made.cert);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    let endpoint = match socket {
        "quinn-udp" => Endpoint::server(config, address)?,
        backend => Endpoint::new_with_abstract_socket(
            EndpointConfig::default(),
            Some(config),
            QuicSocket::bind(backend, address)?,
            Arc::new(TokioRuntime),
        )?,
    };
    Ok((endpoint, certificate))
}

async fn serve(socket: &str, address: SocketAddr, certificate: &str) -> Answer<()> {
    let (endpoint, own) = endpoint(socket, address)?;
    std::fs::write(certificate, &own)?;
    while let Some(incoming) = endpoint.accept().await {
        let (began, cpu) = (Instant::now(), cpu_time()?);
        let bytes = answer(incoming.await?).await?;
        let (took, cpu) = (began.elapsed().as_secs_f64(), cpu_time()? - cpu);
        let cost = cpu.as_nanos() as f64 / bytes as f64;
        println!("{bytes} bytes in {took:.3} s, {cost:.3} ns of CPU a byte");
    }
    Ok(())
}

/// Reads each stream to its end and says how long it was, until the client goes; the bytes in all.
async fn answer(connection: Connection) -> Answer<u64> {
    let mut all = 0;
    while let Ok((mut answer, mut stream)) = connection.accept_bi().await {
        let mut bytes = 0;
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            bytes += chunk.bytes.len() as u64;
        }
        answer.write_all(&bytes.to_be_bytes()).await?;
        answer.finish()?;
        all += bytes;
    }
    Ok(all)
}

/// A client's endpoint for servers of the address's family.
fn client(address: SocketAddr) -> Answer<Endpoint> {
    let any = match address {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    Ok(Endpoint::client(any.parse()?)?)
}

async fn connect(client: &Endpoint, address: SocketAddr, certificate: &[u8]) -> Answer<Connection> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.to_vec()))?;
    let config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    Ok(client.connect_with(config, address, "peer")?.await?)
}

/// Sends N bytes in a stream of its own, and answers how many the server says have come.
async fn send(connection: &Connection, bytes: u64) -> Answer<u64> {
    let (mut stream, mut answer) = connection.open_bi().await?;
    let chunk = [7; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(chunk.len() as u64);
        stream.write_all(&chunk[..now as usize]).await?;
        left -= now;
    }
    stream.finish()?;
    let told = answer.read_to_end(8).await?;
    Ok(u64::from_be_bytes(told.as_slice().try_into()?))
}

async fn transfer(address: SocketAddr, certificate: &[u8], bytes: u64) -> Answer<()> {
    let endpoint = client(address)?;
    let connection = connect(&endpoint, address, certificate).await?;
    let began = Instant::now();
    let told = send(&connection, bytes).await?;
    let rate = bytes as f64 / began.elapsed().as_secs_f64() / 1e6;
    let mut pings = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        send(&connection, 64).await?;
        pings.push(began.elapsed());
    }
    pings.sort_unstable();
    let [half, most] = [PINGS / 2, PINGS * 99 / 100].map(|at| pings[at].as_secs_f64() * 1e6);
    println!("{told} of {bytes} bytes, {rate:.1} MB/s, p50 {half:.0} us, p99 {most:.0} us");
    connection.close(0_u8.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// That of this process: `utime` and `stime` of proc_pid_stat(5), in ticks of 10 ms.
fn cpu_time() -> Answer<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = stat.rsplit_once(')').ok_or("no command in it")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(10 * ticks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_io::backend::{self, Support};
    use mpps_lab::{Lab, LabConfig};
    use tokio::runtime::Handle;

    /// quinn's own client over its own socket, and a server of quinn over ours.
    async fn is_served(
        (endpoint, certificate): (Endpoint, CertificateDer<'static>),
        client: Endpoint,
    ) -> Answer<()> {
        let address = endpoint.local_addr()?;
        let serving = tokio::spawn(async move {
            let incoming = endpoint.accept().await.ok_or("closed")?;
            answer(incoming.await?).await
        });
        let connection = connect(&client, address, &certificate).await?;
        let mut all = 0;
        for bytes in [0, 1, 1_200, 65_536, 5_000_000] {
            assert_eq!(send(&connection, bytes).await?, bytes);
            all += bytes;
        }
        // Marks of congestion are validated, or QUIC would give them up (RFC 9000, 13.4.2).
        let path = connection.stats().path;
        assert_eq!(path.black_holes_detected, 0);
        connection.close(0_u8.into(), b"");
        client.wait_idle().await;
        assert_eq!(serving.await??, all);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_of_quinn_is_served() -> Answer<()> {
        for socket in ["quinn-udp", "recv", "recvmmsg", "io_uring"] {
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let address = address.parse()?;
                let served = is_served(endpoint(socket, address)?, client(address)?);
                served.await.map_err(|error| format!("{socket}: {error}"))?;
            }
        }
        Ok(())
    }

    /// Over a link, past the kernel's stack of the server.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_of_quinn_is_served_by_frames() -> Answer<()> {
        if let Support::No { why, .. } = (backend::find("af_xdp")?.probe)() {
            assert!(std::env::var_os("MPPS_REQUIRE_LAB").is_none(), "{why}");
            return Ok(());
        }
        let config = LabConfig {
            queues: 1,
            ..LabConfig::default()
        };
        let runtime = Handle::current();
        for (socket, is_v4) in [("af_xdp", true), ("af_xdp", false), ("packet_mmap", true)] {
            let lab = Lab::new(&config)?;
            let host = lab.receiver();
            let ip = match is_v4 {
                true => host.v4()[0].into(),
                false => host.v6()[0].into(),
            };
            let address = SocketAddr::new(ip, 4433);
            let server = host.run(|| {
                let _entered = runtime.enter();
                endpoint(socket, address)
            })??;
            let client = lab.sender().run(|| {
                let _entered = runtime.enter();
                client(address)
            })??;
            let served = is_served(server, client).await;
            served.map_err(|error| format!("{socket} at {ip}: {error}"))?;
        }
        Ok(())
    }
}
