// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host of the live tests: this test binary, started by their scripts with a command in `FLOWLOOM_PEER`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, bind, connect, ipproto, sendto, socket};

use crate::actor::ipv4;

/// Timeout longer than any answer on this machine takes, even a slow one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout of a connection that is expected to fail.
const REFUSED_AFTER: Duration = Duration::from_millis(700);

#[test]
#[ignore = "a host of the live tests, which start it"]
fn speak() {
    let Ok(command) = std::env::var("FLOWLOOM_PEER") else { return };
    let words: Vec<&str> = command.split(' ').collect();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap_or_else(|error| panic!("{text}: {error}"));
    match words.as_slice() {
        // Echoes data on any number of connections, until killed.
        ["serve", at] => {
            let listener = TcpListener::bind(address(at)).unwrap();
            println!("\npeer: serving");
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 1 << 16];
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        }
        // Answers each line with the host's name and the line.
        ["greet", at, host] => {
            let listener = TcpListener::bind(address(at)).unwrap();
            println!("\npeer: serving");
            for stream in listener.incoming() {
                let (mut stream, host) = (stream.unwrap(), String::from(*host));
                std::thread::spawn(move || {
                    for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                        if writeln!(stream, "{host} {line}").is_err() {
                            break;
                        }
                    }
                });
            }
        }
        // Opens the connections one after the other and sends on all of them in turn. Prints the host that answers
        // each.
        ["turns", from, to, connections] => {
            let mut streams: Vec<BufReader<TcpStream>> = Vec::new();
            let mut answering: Vec<String> = Vec::new();
            for round in 0..5 {
                for number in 0..connections.parse().unwrap() {
                    if round == 0 {
                        streams.push(BufReader::new(connect_from(address(from), address(to))));
                    }
                    // Longer than a segment.
                    let question = format!("{from} {number} {round} {}", "x".repeat(3000));
                    writeln!(streams[number].get_mut(), "{question}").unwrap();
                    let mut answer = String::new();
                    streams[number].read_line(&mut answer).unwrap();
                    let (host, rest) = answer.trim_end().split_once(' ').unwrap_or_else(|| panic!("`{answer}`"));
                    assert_eq!(rest, question, "an answer to something else");
                    if round == 0 {
                        answering.push(host.to_owned());
                    }
                    assert_eq!(host, answering[number], "connection {number} went elsewhere in round {round}");
                }
            }
            println!("\npeer: {}", answering.join(" "));
        }
        // Echoes datagrams, until killed.
        ["echo", at] => {
            let socket = UdpSocket::bind(address(at)).unwrap();
            println!("\npeer: serving");
            let mut buffer = [0; 2000];
            while let Ok((count, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..count], from);
            }
        }
        // Sends three datagrams from each port. Answers must reach the port that asked. Prints the number of ports that
        // were always answered, and never.
        ["flows", from, to, flows] => {
            let from = address(from);
            let sockets: Vec<UdpSocket> = (0..flows.parse::<u16>().unwrap())
                .map(|number| UdpSocket::bind(SocketAddr::new(from.ip(), from.port() + number)).unwrap())
                .collect();
            let mut answered = vec![0; sockets.len()];
            for round in 0..3 {
                for socket in &sockets {
                    let word = format!("{} {round}", socket.local_addr().unwrap());
                    socket.send_to(word.as_bytes(), address(to)).unwrap();
                }
                // Answers have arrived by then.
                std::thread::sleep(Duration::from_millis(400));
                for (socket, answered) in sockets.iter().zip(&mut answered) {
                    let word = format!("{} {round}", socket.local_addr().unwrap());
                    socket.set_nonblocking(true).unwrap();
                    let mut buffer = [0; 100];
                    while let Ok((count, _)) = socket.recv_from(&mut buffer) {
                        assert_eq!(String::from_utf8_lossy(&buffer[..count]), word, "an answer to something else");
                        *answered += 1;
                    }
                }
            }
            let whole = answered.iter().filter(|answered| **answered == 3).count();
            let none = answered.iter().filter(|answered| **answered == 0).count();
            println!("\npeer: {whole} answered, {none} not");
        }
        // Sends the number of SYNs from each of the spoofed addresses, which begin at `first`.
        ["flood", to, first, addresses, each] => {
            let SocketAddr::V4(to) = address(to) else { panic!("only over IPv4") };
            let first: Ipv4Addr = first.parse().unwrap();
            let addresses: u32 = addresses.parse().unwrap();
            let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
            for number in 0..each.parse::<u32>().unwrap() {
                for host in 0..addresses {
                    let mut tcp = Vec::new();
                    tcp.extend((1024 + number as u16).to_be_bytes().iter().chain(&to.port().to_be_bytes()));
                    tcp.extend((number << 8).to_be_bytes().iter().chain(&[0; 4]));
                    tcp.extend([0x50, 0x02, 0xfa, 0xf0, 0, 0, 0, 0]);
                    let src = Ipv4Addr::from_bits(first.to_bits() + host);
                    let packet = ipv4(src, *to.ip(), 6, 0, &mut tcp, 16);
                    sendto(&socket, &packet, SendFlags::empty(), &to).unwrap();
                }
            }
            println!("\npeer: sent");
        }
        // Prints whether a connection is established and echoes a word.
        ["connect", to] => println!("\npeer: {}", connects(address(to), REFUSED_AFTER)),
        // The same, for connections that are expected to succeed.
        ["reach", to] => println!("\npeer: {}", connects(address(to), PATIENCE)),
        // Sends bytes and reads them back. Prints whether they are equal.
        ["transfer", to, bytes] => {
            let sent: Vec<u8> = (0..bytes.parse::<usize>().unwrap()).map(|i| (i * 7 + i / 251) as u8).collect();
            let mut stream = TcpStream::connect_timeout(&address(to), PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut writer = stream.try_clone().unwrap();
            let copy = sent.clone();
            let thread = std::thread::spawn(move || writer.write_all(&copy));
            let mut received = vec![0; sent.len()];
            let result = stream.read_exact(&mut received);
            thread.join().unwrap().unwrap();
            let same = result.is_ok() && received == sent;
            println!("\npeer: {}", if same { "same" } else { "different" });
        }
        // Sends a datagram to each address.
        ["send", all @ ..] => {
            for to in all {
                let to = address(to);
                let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                UdpSocket::bind(from).unwrap().send_to(b"hello", to).unwrap();
                // Keeps the order even if several CPUs receive them.
                std::thread::sleep(Duration::from_millis(20));
            }
            println!("\npeer: sent");
        }
        // Sends datagrams from many ports in turn, to reach all queues.
        ["burst", to, count] => {
            let sockets: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
            for number in 0..count.parse().unwrap() {
                let socket: &UdpSocket = &sockets[number % sockets.len()];
                // A full queue drops it: only received packets count.
                drop(socket.send_to(b"hello", address(to)));
            }
            println!("\npeer: sent");
        }
        other => panic!("no such command: {other:?}"),
    }
}

fn connects(to: SocketAddr, patience: Duration) -> &'static str {
    let Ok(mut stream) = TcpStream::connect_timeout(&to, patience) else { return "closed" };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 5];
    let spoke = stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut answer));
    if spoke.is_ok() && answer == *b"hello" { "open" } else { "mute" }
}

/// Connects from this source address.
fn connect_from(from: SocketAddr, to: SocketAddr) -> TcpStream {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::STREAM, None).unwrap();
    bind(&socket, &from).unwrap();
    connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}
