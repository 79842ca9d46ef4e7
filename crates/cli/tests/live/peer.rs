//! A host of the live tests: this test program, started by their scripts with `FLOWLOOM_PEER` saying what to do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Longer than any answer in the same machine takes, even a slow one.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection that is not to come about is waited for.
const REFUSED_AFTER: Duration = Duration::from_millis(700);

#[test]
#[ignore = "a host of the live tests, which start it"]
fn speak() {
    let Ok(command) = std::env::var("FLOWLOOM_PEER") else { return };
    let words: Vec<&str> = command.split(' ').collect();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap_or_else(|error| panic!("{text}: {error}"));
    match words.as_slice() {
        // Echoes what any number of connections send, until it is killed.
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
        // Says whether a connection comes about and carries a word there and back.
        ["connect", to] => println!("\npeer: {}", connects(address(to), REFUSED_AFTER)),
        // The same, for connections that are to come about.
        ["reach", to] => println!("\npeer: {}", connects(address(to), PATIENCE)),
        // Sends so many bytes and reads them back; says whether they are the same.
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
                // One after the other also where several CPUs take them in.
                std::thread::sleep(Duration::from_millis(20));
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
