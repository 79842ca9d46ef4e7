// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts that play a script together: a director tells one process in each network namespace, line by line, what to
//! send, and records what the others received.
//!
//! ```text
//! host a 10.9.0.1 fd00::1             # a host and its addresses: the name of its namespace
//! udp 4 a:4000 > b:53                 # a datagram, over IPv4 or IPv6
//! large 4 a:4000 > b:53               # a fragmented datagram
//! unsized 6 a:4000 > b:53             # a datagram with a length field of 0, over IPv6
//! behind 6 a:4000 > b:53              # a datagram after five extension headers
//! open 6 c1 a > b:80                  # a TCP connection named c1
//! say c1 b                            # b sends a word on it
//! end c1 a                            # a shuts down its sending side
//! abort c1 b                          # b resets it
//! forge data c1 b +1000000            # b sends a forged segment, this far beyond the sequence number that a expects
//! forge rst c1 b +1000000             # the same with a reset; `ack`: with an acknowledgement of unsent data
//! ping a > b                          # an echo request, and its answer, over IPv4
//! wait 1500                           # milliseconds
//! ```
//!
//! For each step but `wait` a line says whether the packet reached the other host: `7 yes` or `7 no`, numbered from 1.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};

/// Wait for a packet that may not arrive. A later arrival counts as well.
const PATIENCE: Duration = Duration::from_millis(150);
/// Timeout of a connection that may not be established: too short for a second SYN.
const OPENING: Duration = Duration::from_millis(500);
/// Time limit of an actor's step.
const DONE: Duration = Duration::from_secs(20);
/// Type of service of forged segments. Their identification is the number of their step.
const FORGED: u8 = 0x20;

struct Actor {
    child: Child,
    orders: ChildStdin,
    addresses: [IpAddr; 2],
}

struct Stage {
    actors: HashMap<String, Actor>,
    /// Events of all actors: name and event.
    heard: Receiver<(String, String)>,
    sender: Sender<(String, String)>,
    events: Vec<(String, String)>,
}

impl Stage {
    fn host(&mut self, name: &str, addresses: [IpAddr; 2]) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", name])
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "actor::act"])
            .env("FLOWLOOM_ACTOR", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, host) = (self.sender.clone(), name.to_owned());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(event) = line.strip_prefix("actor: ") {
                    let _ = sender.send((host.clone(), event.to_owned()));
                }
            }
        });
        self.actors.insert(name.to_owned(), Actor { child, orders, addresses });
        self.expect(name, "ready", 0, DONE);
    }

    /// Sends an order to an actor and waits until it is done.
    fn tell(&mut self, name: &str, order: &str) {
        let from = self.events.len();
        writeln!(self.actors.get_mut(name).unwrap().orders, "{order}").unwrap();
        assert!(self.expect(name, "done", from, DONE), "`{name}` does not do `{order}`");
    }

    /// Waits for an event after the first `from` ones. True if it came.
    fn expect(&mut self, name: &str, event: &str, from: usize, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            if self.events[from..].iter().any(|(who, what)| who == name && what == event) {
                return true;
            }
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(said) => self.events.push(said),
                Err(_) => return false,
            }
        }
    }

    fn address(&self, host: &str, family: &str) -> IpAddr {
        self.actors[host].addresses[usize::from(family == "6")]
    }
}

/// `host:port`.
fn at(text: &str) -> (&str, u16) {
    let (host, port) = text.split_once(':').unwrap_or_else(|| panic!("`{text}` is no HOST:PORT"));
    (host, port.parse().unwrap())
}

#[test]
#[ignore = "directs the hosts of the live tests, which start it"]
fn direct() {
    let Ok(script) = std::env::var("FLOWLOOM_SCRIPT") else { return };
    let script = std::fs::read_to_string(script).unwrap();
    let (sender, heard) = channel();
    let mut stage = Stage { actors: HashMap::new(), heard, sender, events: Vec::new() };
    let lines: Vec<Vec<&str>> = script
        .lines()
        .map(|line| line.split('#').next().unwrap().split_whitespace().collect())
        .filter(|words: &Vec<&str>| !words.is_empty())
        .collect();
    // All hosts listen before any host sends.
    for line in &lines {
        match line.as_slice() {
            ["host", name, four, six] => stage.host(name, [four.parse().unwrap(), six.parse().unwrap()]),
            ["udp" | "large" | "unsized" | "behind", family, from, ">", to] => {
                for ((host, port), family) in [(at(from), family), (at(to), family)] {
                    let address = SocketAddr::new(stage.address(host, family), port);
                    stage.tell(host, &format!("hear {address}"));
                }
            }
            ["open", family, _, _, ">", to] => {
                let (host, port) = at(to);
                let address = SocketAddr::new(stage.address(host, family), port);
                stage.tell(host, &format!("listen {address}"));
            }
            _ => {}
        }
    }
    let mut ends: HashMap<&str, [&str; 2]> = HashMap::new();
    let mut connected: Vec<&str> = Vec::new();
    let mut expected = Vec::new();
    for line in &lines {
        let (from, step) = (stage.events.len(), expected.len() + 1);
        let (who, what) = match line.as_slice() {
            ["host", ..] => continue,
            ["wait", ms] => {
                std::thread::sleep(Duration::from_millis(ms.parse().unwrap()));
                continue;
            }
            [verb @ ("udp" | "large" | "unsized" | "behind"), family, from, ">", to] => {
                let ((host, port), (other, other_port)) = (at(from), at(to));
                let source = SocketAddr::new(stage.address(host, family), port);
                let target = SocketAddr::new(stage.address(other, family), other_port);
                stage.tell(host, &format!("{verb} {source} {target} {step}"));
                (other, format!("word {step}"))
            }
            ["open", family, name, host, ">", to] => {
                let (other, port) = at(to);
                ends.insert(name, [host, other]);
                let target = SocketAddr::new(stage.address(other, family), port);
                stage.tell(host, &format!("open {target} {name}"));
                let opened = format!("opened {name}");
                if !stage.expect(host, &format!("connected {name}"), from, Duration::ZERO) {
                    expected.push((other, opened, from));
                    continue;
                }
                connected.push(*name);
                (other, opened)
            }
            ["ping", host, ">", to] => {
                let target = stage.address(to, "4");
                stage.tell(host, &format!("ping {target} {step}"));
                (*host, format!("word {step}"))
            }
            ["say" | "end" | "abort", name, _] | ["forge", _, name, ..] if !connected.contains(name) => {
                // Nothing can be sent.
                expected.push(("", String::new(), from));
                continue;
            }
            [verb @ ("say" | "end" | "abort"), name, host] => {
                let other = other(&ends, name, host);
                stage.tell(host, &format!("{verb} {name} {step}"));
                let what = match *verb {
                    "say" => format!("word {step}"),
                    "end" => format!("ended {name}"),
                    _ => format!("gone {name}"),
                };
                (other, what)
            }
            ["forge", kind, name, host, beyond] => {
                let other = other(&ends, name, host);
                stage.tell(host, &format!("forge {kind} {name} {beyond} {step}"));
                (other, format!("word {step}"))
            }
            unknown => panic!("no such step: {unknown:?}"),
        };
        stage.expect(who, &what, from, PATIENCE);
        expected.push((who, what, from));
    }
    std::thread::sleep(PATIENCE);
    for (number, (who, what, from)) in expected.into_iter().enumerate() {
        let came = stage.expect(who, &what, from, Duration::ZERO);
        println!("\nplay: {} {}", number + 1, if came { "yes" } else { "no" });
    }
    for actor in stage.actors.values_mut() {
        let _ = actor.child.kill();
        let _ = actor.child.wait();
    }
}

fn other<'a>(ends: &HashMap<&str, [&'a str; 2]>, name: &str, host: &str) -> &'a str {
    let ends = ends[name];
    if ends[0] == host { ends[1] } else { ends[0] }
}

/// Streams of the connections, and the last segment from each remote end: the sequence number after it, and its
/// acknowledgement number.
#[derive(Default)]
struct Shared {
    streams: HashMap<String, TcpStream>,
    /// By remote address and local port.
    latest: HashMap<(SocketAddrV4, u16), (u32, u32)>,
}

fn report(event: &str) {
    // A single write, so that output of other threads is not interleaved.
    println!("\nactor: {event}");
}

#[test]
#[ignore = "a host of the live tests, which start it"]
fn act() {
    if std::env::var("FLOWLOOM_ACTOR").is_err() {
        return;
    }
    let shared = Arc::new(Mutex::new(Shared::default()));
    let mut udp: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut listening: HashMap<SocketAddr, ()> = HashMap::new();
    let forger = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
    let forger6 = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::RAW)).unwrap();
    let watch = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP)).unwrap();
    let watched = shared.clone();
    std::thread::spawn(move || watch_segments(&watch, &watched));
    let pinger = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    let answers = pinger.try_clone().unwrap();
    std::thread::spawn(move || watch_answers(&answers));
    report("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["hear", address] => {
                let address: SocketAddr = address.parse().unwrap();
                udp.entry(address).or_insert_with(|| {
                    let socket = UdpSocket::bind(address).unwrap();
                    let heard = socket.try_clone().unwrap();
                    std::thread::spawn(move || {
                        let mut buffer = [0; 100];
                        while let Ok((count, _)) = heard.recv_from(&mut buffer) {
                            report(&format!("word {}", String::from_utf8_lossy(&buffer[..count]).trim_end()));
                        }
                    });
                    socket
                });
            }
            ["udp", from, to, word] => {
                let socket = &udp[&from.parse::<SocketAddr>().unwrap()];
                let _ = socket.send_to(word.as_bytes(), to);
            }
            ["large", from, to, word] => {
                let socket = &udp[&from.parse::<SocketAddr>().unwrap()];
                let _ = socket.send_to(format!("{word:3000}").as_bytes(), to);
            }
            [kind @ ("unsized" | "behind"), from, to, word] => {
                let (from, to): (SocketAddrV6, SocketAddrV6) = (from.parse().unwrap(), to.parse().unwrap());
                let packet = hidden(kind, from, to, word.as_bytes());
                let _ = sendto(&forger6, &packet, SendFlags::empty(), &SocketAddrV6::new(*to.ip(), 0, 0, 0));
            }
            ["listen", address] => {
                let address: SocketAddr = address.parse().unwrap();
                listening.entry(address).or_insert_with(|| {
                    let listener = TcpListener::bind(address).unwrap();
                    let shared = shared.clone();
                    std::thread::spawn(move || {
                        for stream in listener.incoming().map_while(Result::ok) {
                            let shared = shared.clone();
                            std::thread::spawn(move || listen(stream, None, &shared));
                        }
                    });
                });
            }
            ["open", to, name] => {
                if let Ok(mut stream) = TcpStream::connect_timeout(&to.parse().unwrap(), OPENING) {
                    stream.set_nodelay(true).unwrap();
                    writeln!(stream, "{name}").unwrap();
                    let (name, shared) = (String::from(*name), shared.clone());
                    shared.lock().unwrap().streams.insert(name.clone(), stream.try_clone().unwrap());
                    report(&format!("connected {name}"));
                    std::thread::spawn(move || listen(stream, Some(name), &shared));
                }
            }
            ["say", name, word] => {
                if let Some(stream) = shared.lock().unwrap().streams.get_mut(*name) {
                    let _ = writeln!(stream, "{word}");
                }
            }
            ["end", name, _] => {
                if let Some(stream) = shared.lock().unwrap().streams.get(*name) {
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                }
            }
            ["abort", name, _] => {
                if let Some(stream) = shared.lock().unwrap().streams.remove(*name) {
                    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
                    // Ends the thread that reads the connection, too.
                    let _ = stream.shutdown(std::net::Shutdown::Read);
                }
            }
            ["forge", kind, name, beyond, step] => {
                // By then the last segment of the remote end is recorded.
                std::thread::sleep(Duration::from_millis(100));
                let shared = shared.lock().unwrap();
                if let Some(stream) = shared.streams.get(*name) {
                    forge(&forger, &shared, stream, kind, beyond.parse().unwrap(), step.parse().unwrap());
                }
            }
            ["ping", to, step] => {
                let to: IpAddr = to.parse().unwrap();
                let step: u16 = step.parse().unwrap();
                let mut request = vec![8, 0, 0, 0];
                request.extend(std::process::id().to_be_bytes()[2..].iter().chain(&step.to_be_bytes()));
                let sum = checksum(&[&request]);
                request[2..4].copy_from_slice(&sum.to_be_bytes());
                let _ = sendto(&pinger, &request, SendFlags::empty(), &SocketAddr::new(to, 0));
            }
            other => panic!("no such order: {other:?}"),
        }
        report("done");
    }
}

/// Reads words from a connection. An accepted connection first receives its name.
fn listen(stream: TcpStream, name: Option<String>, shared: &Mutex<Shared>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let name = name.unwrap_or_else(|| {
        let mut name = String::new();
        if reader.read_line(&mut name).is_ok() && !name.is_empty() {
            name.truncate(name.len() - 1);
            stream.set_nodelay(true).unwrap();
            shared.lock().unwrap().streams.insert(name.clone(), stream.try_clone().unwrap());
            report(&format!("opened {name}"));
        }
        name
    });
    drop(stream);
    let mut word = String::new();
    loop {
        word.clear();
        match reader.read_line(&mut word) {
            Ok(0) => return report(&format!("ended {name}")),
            Ok(_) => report(&format!("word {}", word.trim_end())),
            Err(_) => return report(&format!("gone {name}")),
        }
    }
}

/// Records the last segment from each connection's remote end, and reports forged segments.
fn watch_segments(socket: &OwnedFd, shared: &Mutex<Shared>) {
    let mut packet = vec![0; 1 << 16];
    while let Ok((count, _)) = recv(socket, &mut packet[..], RecvFlags::empty()) {
        let ip = &packet[..count];
        let header = usize::from(ip[0] & 15) * 4;
        let id = u16::from_be_bytes([ip[4], ip[5]]);
        if ip[1] == FORGED {
            report(&format!("word {id}"));
            continue;
        }
        let tcp = &ip[header..];
        let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let payload = tcp.len() - usize::from(tcp[12] >> 4) * 4;
        let flags = tcp[13];
        let end = number(4).wrapping_add(payload as u32 + u32::from(flags & 1) + u32::from(flags >> 1 & 1));
        let from = SocketAddrV4::new(Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]), port(0));
        shared.lock().unwrap().latest.insert((from, port(2)), (end, number(8)));
    }
}

fn watch_answers(socket: &OwnedFd) {
    let mut packet = [0; 2000];
    while let Ok((count, _)) = recv(socket, &mut packet[..], RecvFlags::empty()) {
        let icmp = &packet[usize::from(packet[0] & 15) * 4..count];
        if icmp[0] == 0 && icmp[4..6] == std::process::id().to_be_bytes()[2..] {
            report(&format!("word {}", u16::from_be_bytes([icmp[6], icmp[7]])));
        }
    }
}

/// Sends a segment with valid checksums and addresses, and a sequence number `beyond` the expected one.
fn forge(socket: &OwnedFd, shared: &Shared, stream: &TcpStream, kind: &str, beyond: i64, step: u16) {
    // A closed connection has no remote end.
    let (Ok(from), Ok(to)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("only over IPv4") };
    let Some(&(end, ack)) = shared.latest.get(&(to, from.port())) else { panic!("nothing came from {to}") };
    let sequence = ack.wrapping_add(beyond as u32);
    let (flags, payload, end): (u8, &[u8], u32) = match kind {
        "data" => (0x18, b"forged\n", end),
        "rst" => (0x04, b"", 0),
        "ack" => (0x10, b"", end.wrapping_add(1_000_000_000)),
        other => panic!("no segment `{other}` is known"),
    };
    let mut tcp = Vec::new();
    tcp.extend(from.port().to_be_bytes().iter().chain(&to.port().to_be_bytes()));
    tcp.extend(sequence.to_be_bytes().iter().chain(&end.to_be_bytes()));
    tcp.extend([0x50, flags, 0x01, 0xf6, 0, 0, 0, 0]);
    tcp.extend(payload);
    let mut segment = ipv4(*from.ip(), *to.ip(), 6, step, &mut tcp, 16);
    segment[1] = FORGED;
    let _ = sendto(socket, &segment, SendFlags::empty(), &SocketAddrV4::new(*to.ip(), 0));
}

/// An IPv4 packet with its transport checksum at `sum_at`. The kernel fills in the header checksum.
pub(crate) fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, id: u16, transport: &mut [u8], sum_at: usize) -> Vec<u8> {
    let length = (transport.len() as u16).to_be_bytes();
    let sum = checksum(&[&src.octets(), &dst.octets(), &[0, proto], &length, transport]);
    transport[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x45, 0];
    packet.extend((20 + transport.len() as u16).to_be_bytes().iter().chain(&id.to_be_bytes()));
    packet.extend([0, 0, 64, proto, 0, 0]);
    packet.extend(src.octets().iter().chain(&dst.octets()));
    packet.extend_from_slice(transport);
    packet
}

/// A datagram over IPv6 that Linux accepts, but not every parser.
fn hidden(kind: &str, from: SocketAddrV6, to: SocketAddrV6, payload: &[u8]) -> Vec<u8> {
    const UDP: u8 = 17;
    const DESTINATION_OPTIONS: u8 = 60;
    let length = (8 + payload.len() as u16).to_be_bytes();
    let (first, headers, said) = match kind {
        "unsized" => (UDP, 0u16, [0, 0]),
        "behind" => (DESTINATION_OPTIONS, 5, length),
        other => panic!("no datagram `{other}` is known"),
    };
    let mut datagram: Vec<u8> = [from.port().to_be_bytes(), to.port().to_be_bytes(), said, [0, 0]].concat();
    datagram.extend(payload);
    let sum = checksum(&[&from.ip().octets(), &to.ip().octets(), &length, &[0, UDP], &datagram]);
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((8 * headers + datagram.len() as u16).to_be_bytes().iter().chain(&[first, 64]));
    packet.extend(from.ip().octets().iter().chain(&to.ip().octets()));
    for left in (0..headers).rev() {
        // Padding of four bytes.
        packet.extend([if left == 0 { UDP } else { DESTINATION_OPTIONS }, 0, 1, 4, 0, 0, 0, 0]);
    }
    packet.extend(datagram);
    packet
}

/// Internet checksum of pieces, all but the last of even length.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks(2));
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
