// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics over HTTP: `GET` and `HEAD` of one page, one request a connection. Bodies of requests are not read.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::ControlError;
use crate::metrics::metrics;
use crate::server::{Subject, accept};

/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// The longest time to read a request, and the longest to write its response.
const PATIENCE: Duration = Duration::from_secs(5);
/// Further connections are closed at once.
const MAX_CONNECTIONS: usize = 8;
/// The name of the threads.
const THREAD: &str = "metrics";
/// The media type of the text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// An endpoint for Prometheus.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
}

impl MetricsServer {
    /// Serves the metrics of a run at `http://ADDRESS/metrics`. Threads of their own answer; they end with the process.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(address: SocketAddr, subject: Arc<dyn Subject>) -> std::result::Result<MetricsServer, ControlError> {
        let failed = |error: Error| ControlError::Metrics { address: address.to_string(), reason: error.to_string() };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        // An error of a connection ends it.
        let answer = move |stream: &TcpStream| _ = serve(stream, &*subject);
        let accept = move || accept(listener.incoming(), (THREAD, MAX_CONNECTIONS), |_| (), answer);
        std::thread::Builder::new().name(THREAD.to_owned()).spawn(accept).map_err(failed)?;
        Ok(MetricsServer { address: bound })
    }

    /// The address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The time until `deadline`, for a timeout of a socket.
fn left(deadline: Instant) -> Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn serve(mut stream: &TcpStream, subject: &dyn Subject) -> Result<()> {
    let head = read_head(stream)?;
    let line = head.as_deref().and_then(|head| std::str::from_utf8(head).ok()).and_then(|head| head.lines().next());
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let (status, kind, body) = match words.as_slice() {
        _ if head.is_none() => {
            let text = format!("the head of a request has at most {MAX_HEAD_BYTES} bytes\n");
            ("431 Request Header Fields Too Large", TEXT_TYPE, text)
        }
        [method, target, version] if version.starts_with("HTTP/1.") => respond(method, target, subject),
        _ => ("400 Bad Request", TEXT_TYPE, "expected a request of HTTP/1\n".to_owned()),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    if words.first() != Some(&"HEAD") {
        text.push_str(&body);
    }
    let (mut rest, deadline) = (text.as_bytes(), Instant::now() + PATIENCE);
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // Closing a connection with data unread resets it, and the response may be lost: take some of it.
    stream.shutdown(Shutdown::Write)?;
    let mut bytes = [0; 4096];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        if stream.read(&mut bytes)? == 0 {
            return Ok(());
        }
    }
}

/// The lines up to the empty one; `None` if they are too long.
fn read_head(mut stream: &TcpStream) -> Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(end);
            return Ok((end <= MAX_HEAD_BYTES).then_some(head));
        }
        if head.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
    }
}

/// Status, media type and body.
fn respond(method: &str, target: &str, subject: &dyn Subject) -> (&'static str, &'static str, String) {
    if !matches!(method, "GET" | "HEAD") {
        return ("405 Method Not Allowed", TEXT_TYPE, "expected GET\n".to_owned());
    }
    if target.split('?').next() != Some("/metrics") {
        return ("404 Not Found", TEXT_TYPE, "metrics are at /metrics\n".to_owned());
    }
    match subject.statistics(false) {
        Ok(report) => ("200 OK", METRICS_TYPE, metrics(&report)),
        Err(refusal) => ("503 Service Unavailable", TEXT_TYPE, format!("{refusal}\n")),
    }
}
