//! A scripted name server: SRV records and addresses, over UDP and over TCP on one free port.
//!
//! It answers from what the test says and writes down what it was asked. It knows nothing of Warmgate.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::patience::within;

pub struct NameServer {
    address: SocketAddr,
    zone: Arc<Zone>,
    _serving: JoinSet<()>,
}

/// The data of each, as it goes over the wire.
type Records = Vec<Vec<u8>>;

#[derive(Default)]
struct Zone {
    /// By name and kind.
    records: Mutex<HashMap<(String, u16), Records>>,
    ttl_s: Mutex<u32>,
    manner: Mutex<Manner>,
    /// What was asked: `udp SRV name`.
    asked: watch::Sender<Vec<String>>,
}

/// How it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    #[default]
    Plain,
    /// Over UDP that the answer does not fit.
    Truncating,
    /// Not at all.
    Silent,
    /// That it cannot.
    Failing,
    /// Bytes that are no answer.
    Nonsense,
}

const SRV: u16 = 33;
const A: u16 = 1;
const AAAA: u16 = 28;

impl NameServer {
    pub async fn start() -> NameServer {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("an address");
        let zone = Arc::new(Zone::default());
        let mut serving = JoinSet::new();
        serving.spawn(over_udp(udp, zone.clone()));
        serving.spawn(over_tcp(tcp, zone.clone()));
        NameServer { address, zone, _serving: serving }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Under that name are these: priority, host, port.
    pub fn services(&self, name: &str, services: &[(u16, &str, u16)]) {
        let record = |(priority, host, port): &(u16, &str, u16)| {
            let mut data = [priority.to_be_bytes(), [0, 1], port.to_be_bytes()].concat();
            data.extend(wire_name(host));
            data
        };
        self.put(name, SRV, services.iter().map(record).collect());
    }

    /// That host has these addresses.
    pub fn host(&self, name: &str, ips: &[&str]) {
        let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
        let bytes = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let (four, six): (Vec<&IpAddr>, Vec<&IpAddr>) = ips.iter().partition(|ip| ip.is_ipv4());
        self.put(name, A, four.into_iter().map(bytes).collect());
        self.put(name, AAAA, six.into_iter().map(bytes).collect());
    }

    /// Answers are good for so long.
    pub fn good_for(&self, ttl_s: u32) {
        *self.zone.ttl_s.lock().expect("a time") = ttl_s;
    }

    pub fn be(&self, manner: Manner) {
        *self.zone.manner.lock().expect("a manner") = manner;
    }

    pub fn asked(&self) -> Vec<String> {
        self.zone.asked.borrow().clone()
    }

    /// Returns once so many more questions of that kind were asked.
    pub async fn asked_more(&self, kind: &str, more: usize) {
        let mut asked = self.zone.asked.subscribe();
        let count = |asked: &Vec<String>| asked.iter().filter(|question| question.starts_with(kind)).count();
        let wanted = count(&asked.borrow()) + more;
        let counted = async { asked.wait_for(|asked| count(asked) >= wanted).await.is_ok() };
        assert!(within(&format!("{more} more questions of {kind}"), counted).await);
    }

    fn put(&self, name: &str, kind: u16, records: Records) {
        self.zone.records.lock().expect("records").insert((name.to_ascii_lowercase(), kind), records);
    }
}

async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("an address")).await {
            return (udp, tcp);
        }
    }
}

async fn over_udp(socket: UdpSocket, zone: Arc<Zone>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok((size, from)) = socket.recv_from(&mut buffer).await {
        if let Some(answer) = zone.answer(&buffer[..size], "udp") {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn over_tcp(listener: TcpListener, zone: Arc<Zone>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let zone = zone.clone();
        connections.spawn(async move { serve(stream, &zone).await });
    }
}

async fn serve(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    loop {
        let mut question = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut question).await?;
        if let Some(answer) = zone.answer(&question, "tcp") {
            stream.write_u16(answer.len() as u16).await?;
            stream.write_all(&answer).await?;
        }
    }
}

impl Zone {
    fn answer(&self, question: &[u8], over: &str) -> Option<Vec<u8>> {
        let (name, end) = name_at(question, 12)?;
        let kind = u16::from_be_bytes([*question.get(end)?, *question.get(end + 1)?]);
        let called = [(SRV, "SRV"), (A, "A"), (AAAA, "AAAA")].into_iter().find(|(number, _)| *number == kind);
        self.asked.send_modify(|asked| asked.push(format!("{over} {} {name}", called.map_or("?", |(_, name)| name))));
        let manner = *self.manner.lock().expect("a manner");
        let known = self.records.lock().expect("records").get(&(name, kind)).cloned();
        let (flags, records): (u16, _) = match (manner, known) {
            (Manner::Silent, _) => return None,
            (Manner::Nonsense, _) => return Some([&question[..2], &[0xff; 40]].concat()),
            (Manner::Failing, _) => (0x8182, Vec::new()),
            (Manner::Truncating, Some(_)) if over == "udp" => (0x8380, Vec::new()),
            (_, Some(records)) => (0x8180, records),
            (_, None) => (0x8183, Vec::new()),
        };
        let mut answer = question[..2].to_vec();
        for number in [flags, 1, records.len() as u16, 0, 0] {
            answer.extend(number.to_be_bytes());
        }
        answer.extend(&question[12..end + 4]);
        let ttl_s = *self.ttl_s.lock().expect("a time");
        for data in records {
            // Its owner is the name that was asked for.
            answer.extend([0xc0, 12]);
            answer.extend([kind.to_be_bytes(), 1u16.to_be_bytes()].concat());
            answer.extend(ttl_s.to_be_bytes());
            answer.extend((data.len() as u16).to_be_bytes());
            answer.extend(data);
        }
        Some(answer)
    }
}

/// The name that begins there, and what comes after it.
fn name_at(message: &[u8], start: usize) -> Option<(String, usize)> {
    let (mut at, mut labels) = (start, Vec::new());
    loop {
        let size = usize::from(*message.get(at)?);
        at += 1;
        if size == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + size)?).to_ascii_lowercase());
        at += size;
    }
}

fn wire_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).chain([0]).collect()
}
