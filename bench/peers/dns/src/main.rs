//! An authoritative DNS server: the catalog of hickory-dns over `mpps-io`.
//!
//!     peer-dns BACKEND ADDRESS [INTERFACE]
//!
//! It serves `example.org`, where every host of a test has the address 192.0.2.1.

use hickory_server::authority::{Catalog, MessageRequest, MessageResponse, ZoneType};
use hickory_server::proto::rr::rdata::{A, SOA};
use hickory_server::proto::rr::{Name, RData, Record};
use hickory_server::proto::serialize::binary::{BinDecodable, BinEncoder};
use hickory_server::proto::xfer::Protocol;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::store::in_memory::InMemoryAuthority;
use mpps_io::{Rx, RxConfig, Wait, backend};
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Answer<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [backend, address, interface @ ..] = &words[..] else {
        return Err("BACKEND ADDRESS [INTERFACE]".into());
    };
    let mut rx = open(backend, address, interface.first().map(String::as_str))?;
    let server = DnsServer::new()?;
    loop {
        server.serve(&mut *rx)?;
    }
}

fn open(backend: &str, address: &str, interface: Option<&str>) -> Answer<Box<dyn Rx>> {
    let mut config = RxConfig::new(address.parse()?);
    config.answers = true;
    config.ring.interface = interface.map(str::to_owned);
    Ok(backend::find(backend)?.open_rx(&config)?)
}

struct DnsServer {
    catalog: Catalog,
    runtime: Runtime,
}

impl DnsServer {
    fn new() -> Answer<Self> {
        let zone = Name::from_ascii("example.org.")?;
        let host = Name::from_ascii("www.example.org.")?;
        let mut authority = InMemoryAuthority::empty(zone.clone(), ZoneType::Primary, false);
        let soa = SOA::new(host.clone(), host.clone(), 1, 3600, 600, 86_400, 60);
        authority.upsert_mut(Record::from_rdata(zone.clone(), 60, RData::SOA(soa)), 1);
        let address = RData::A(A::new(192, 0, 2, 1));
        authority.upsert_mut(Record::from_rdata(host, 60, address), 1);
        let mut catalog = Catalog::new();
        catalog.upsert(zone.into(), vec![Arc::new(authority)]);
        let runtime = Builder::new_current_thread().build()?;
        Ok(Self { catalog, runtime })
    }

    /// Answers what comes within a second; how many questions that were.
    fn serve(&self, rx: &mut dyn Rx) -> io::Result<u64> {
        let served = rx.serve(Wait::Auto(Duration::from_secs(1)), &mut |requests| {
            for request in requests {
                if let Some(answer) = self.answer(&request) {
                    request.reply(&answer);
                }
            }
        })?;
        Ok(served.received)
    }

    fn answer(&self, question: &mpps_io::Request<'_>) -> Option<Vec<u8>> {
        let message = MessageRequest::from_bytes(question.payload()).ok()?;
        // A client without EDNS takes 512 bytes (RFC 1035).
        let bytes_max = message.edns().map_or(512, |edns| edns.max_payload());
        let response = Response {
            bytes: Arc::default(),
            bytes_max,
        };
        let request = Request::new(message, question.source()?, Protocol::Udp);
        let handled = self.catalog.handle_request(&request, response.clone());
        self.runtime.block_on(handled);
        let bytes = std::mem::take(
            &mut *response
                .bytes
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        (!bytes.is_empty()).then_some(bytes)
    }
}

/// Keeps the message that the catalog makes.
#[derive(Clone)]
struct Response {
    bytes: Arc<Mutex<Vec<u8>>>,
    bytes_max: u16,
}

#[async_trait::async_trait]
impl ResponseHandler for Response {
    async fn send_response<'a>(
        &mut self,
        response: MessageResponse<
            '_,
            'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
        >,
    ) -> io::Result<ResponseInfo> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut encoder = BinEncoder::new(&mut bytes);
        encoder.set_max_size(self.bytes_max);
        Ok(response.destructive_emit(&mut encoder)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_io::backend::Support;
    use mpps_lab::{Lab, LabConfig};
    use std::process::Command;

    const QUESTIONS: u64 = 3;

    /// dig asks a server at a wildcard; it takes no answer from another address than it asked.
    fn is_answered(backend: &str, interface: Option<&str>, lab: &Lab) -> Answer<()> {
        let host = lab.receiver();
        let mut rx = host.run(|| open(backend, "0.0.0.0:5353", interface))??;
        let serving = std::thread::spawn(move || {
            let (server, mut came) = (DnsServer::new()?, 0);
            while came < QUESTIONS {
                match server.serve(&mut *rx)? {
                    0 => return Err("nothing came".into()),
                    more => came += more,
                }
            }
            Answer::Ok(())
        });
        for (name, status) in [
            ("www.example.org", "192.0.2.1"),
            ("none.example.org", "NXDOMAIN"),
            ("example.com", "REFUSED"),
        ] {
            let mut dig = Command::new("dig");
            dig.args(["+tries=1", "-p", "5353", name]);
            dig.arg(format!("@{}", host.v4()[0]));
            let said = lab.sender().run(|| dig.output())??;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            assert!(said.contains(status), "{backend}: {said}");
        }
        serving.join().expect("it did not panic")
    }

    #[test]
    fn dig_is_answered_by_every_backend() -> Answer<()> {
        if let Support::No { why, .. } = (backend::find("af_xdp")?.probe)() {
            assert!(std::env::var_os("MPPS_REQUIRE_LAB").is_none(), "{why}");
            return Ok(());
        }
        let config = LabConfig {
            queues: 1,
            ..LabConfig::default()
        };
        for backend in ["recvmmsg", "io_uring", "packet_mmap", "af_xdp"] {
            let lab = Lab::new(&config)?;
            let is_ring = ["packet_mmap", "af_xdp"].contains(&backend);
            let interface = is_ring.then_some(lab.receiver().interface());
            is_answered(backend, interface, &lab)?;
        }
        Ok(())
    }
}
