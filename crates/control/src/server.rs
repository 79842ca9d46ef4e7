// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server of a control socket.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::directory::{directory, file, is_stale, make};
use crate::error::{ControlError, Refusal};
use crate::hex;
use crate::protocol::{Answer, Changed, Entry, Greeting, Maps, Reloaded, Request, UpdateRule};
use crate::report::Report;

/// The age from which on a socket that refuses connections is one of a killed process.
const AGE: Duration = Duration::from_secs(2);
/// The longest request line.
const MAX_REQUEST_BYTES: u64 = 1 << 20;
/// The rest after a connection that could not be accepted: without a descriptor left, the next one fails as well.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Further connections are refused.
const MAX_CONNECTIONS: usize = 64;
/// The name of the threads.
const THREAD: &str = "control";
/// The read timeout of a connection.
const READ_PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// The write timeout of a connection.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// Gets some entries, as keys and values; false if no more are wanted.
pub type Visitor<'a> = dyn FnMut(Vec<(Vec<u8>, Vec<u8>)>) -> bool + 'a;

/// The run that a server answers for. Keys and values have the sizes that the map has, or are refused.
pub trait Subject: Send + Sync {
    /// What it says of itself.
    fn greeting(&self) -> Greeting;

    /// Its statistics; with the largest flows if they are wanted and known.
    ///
    /// # Errors
    /// The run is ending.
    fn statistics(&self, with_flows: bool) -> Result<Report, Refusal>;

    /// Its maps.
    ///
    /// # Errors
    /// As for [`Subject::statistics`].
    fn maps(&self) -> Result<Maps, Refusal>;

    /// Visits all entries of a map, some at a time; `visitor` returns false if no more are wanted.
    ///
    /// # Errors
    /// As for [`Subject::statistics`]; there is no such map, or its entries cannot be read.
    fn dump(&self, map: &str, visitor: &mut Visitor<'_>) -> Result<(), Refusal>;

    /// The value of a key.
    ///
    /// # Errors
    /// As for [`Subject::dump`].
    fn lookup(&self, map: &str, key: Vec<u8>) -> Result<Option<Vec<u8>>, Refusal>;

    /// Writes an entry; returns whether the condition held.
    ///
    /// # Errors
    /// As for [`Subject::dump`]; the map is full or takes no entries.
    fn update(&self, map: &str, key: Vec<u8>, value: Vec<u8>, rule: UpdateRule) -> Result<bool, Refusal>;

    /// Deletes an entry; returns whether it existed.
    ///
    /// # Errors
    /// As for [`Subject::update`].
    fn delete(&self, map: &str, key: Vec<u8>) -> Result<bool, Refusal>;

    /// Goes on with another program, by default with the run's own file, read again.
    ///
    /// # Errors
    /// The program is invalid or refused; the old one runs on.
    fn reload(
        &self,
        path: Option<String>,
        params: Vec<(String, String)>,
        program: Option<String>,
    ) -> Result<Reloaded, Refusal>;
}

/// A listening socket; dropping it removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
}

/// Serves connections, each in a thread of its own with this name, at most `limit.1` at once; refuses others.
pub(crate) fn accept<S: Send + 'static>(
    incoming: impl Iterator<Item = std::io::Result<S>>,
    limit: (&str, usize),
    refuse: impl Fn(&S),
    serve: impl Fn(&S) + Send + Sync + 'static,
) {
    let (name, most) = limit;
    // One reference for each connection.
    let (open, serve) = (Arc::new(()), Arc::new(serve));
    for stream in incoming {
        let Ok(stream) = stream else {
            std::thread::sleep(ACCEPT_REST);
            continue;
        };
        if Arc::strong_count(&open) > most {
            refuse(&stream);
            continue;
        }
        let (serve, open) = (Arc::clone(&serve), Arc::clone(&open));
        let answer = move || {
            serve(&stream);
            drop(open);
        };
        // Without a thread the connection is closed.
        let _ = std::thread::Builder::new().name(name.to_owned()).spawn(answer);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If that fails, clients take the socket for stale: its connections are refused.
        let _ = fs::remove_file(&self.path);
    }
}

impl Server {
    /// Listens in the directory of this user. Threads of their own answer; they end with the process.
    ///
    /// # Errors
    /// There is no such directory, or others may enter it.
    pub fn start(subject: Arc<dyn Subject>) -> Result<Server, ControlError> {
        Server::start_in(&directory()?, subject)
    }

    /// As [`Server::start`], in another directory.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn start_in(folder: &Path, subject: Arc<dyn Subject>) -> Result<Server, ControlError> {
        make(folder)?;
        let path = folder.join(format!("{}.sock", std::process::id()));
        remove_stale(folder, &path)?;
        let listener = UnixListener::bind(&path).map_err(|e| file(&path, "created", e))?;
        let server = Server { path: path.clone() };
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&path, mode).map_err(|e| file(&path, "protected", e))?;
        let refuse = |stream: &UnixStream| {
            let message = format!("{MAX_CONNECTIONS} clients are connected to this run: end one of them");
            // It fits into the empty buffer of the connection.
            let _ = send(stream, &Answer::Error(Refusal::Environment(message)));
        };
        let answer = move |stream: &UnixStream| serve(stream, &*subject);
        let accept = move || accept(listener.incoming(), (THREAD, MAX_CONNECTIONS), refuse, answer);
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(accept);
        thread.map_err(|e| file(&path, "served by a thread", e))?;
        Ok(server)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the sockets of processes that were killed, among them one that had this id.
fn remove_stale(folder: &Path, own: &Path) -> Result<(), ControlError> {
    for entry in fs::read_dir(folder).map_err(|e| file(folder, "read", e))? {
        let path = entry.map_err(|e| file(folder, "read", e))?.path();
        let is_socket = path.extension().is_some_and(|extension| extension == "sock");
        let is_refused = || UnixStream::connect(&path).is_err_and(|error| is_stale(&error));
        // One that is only being made refuses too.
        if is_socket && (path == own || is_old(&path)) && is_refused() {
            fs::remove_file(&path).map_err(|e| file(&path, "removed", e))?;
        }
    }
    Ok(())
}

fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > AGE))
}

/// Answers the requests of a connection. An error of the connection ends it.
fn serve(stream: &UnixStream, subject: &dyn Subject) {
    let _ = answer_all(stream, subject);
}

fn send(mut stream: &UnixStream, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

fn answer_all(stream: &UnixStream, subject: &dyn Subject) -> std::io::Result<()> {
    stream.set_write_timeout(Some(WRITE_PATIENCE))?;
    stream.set_read_timeout(Some(READ_PATIENCE))?;
    send(stream, &subject.greeting())?;
    let mut reader = BufReader::new(stream);
    loop {
        // Text that is not UTF-8 is no request, and is answered like others.
        let mut line = Vec::new();
        let read = reader.by_ref().take(MAX_REQUEST_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") && read as u64 == MAX_REQUEST_BYTES {
            let message = format!("a request has at most {MAX_REQUEST_BYTES} bytes");
            return send(stream, &Answer::Error(Refusal::Input(message)));
        }
        let result = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => answer(stream, subject, request),
            Err(error) => Err(Refusal::Input(format!("not a request of this protocol: {error}"))),
        };
        send(stream, &result.map_or_else(Answer::Error, Answer::Ok))?;
    }
}

fn bytes(text: &str, part: &str) -> Result<Vec<u8>, Refusal> {
    hex::decode(text).ok_or_else(|| Refusal::Input(format!("{part}: expected hexadecimal digits, found `{text}`")))
}

fn result(value: impl Serialize) -> Result<serde_json::Value, Refusal> {
    serde_json::to_value(value).map_err(|e| Refusal::Environment(e.to_string()))
}

fn answer(stream: &UnixStream, subject: &dyn Subject, request: Request) -> Result<serde_json::Value, Refusal> {
    match request {
        Request::Statistics => result(subject.statistics(true)?),
        Request::Maps => result(subject.maps()?),
        Request::Dump { map } => {
            let mut count = 0;
            subject.dump(&map, &mut |entries| {
                count += entries.len();
                let entries = entries.iter().map(|(key, value)| (hex::encode(key), hex::encode(value)));
                send(stream, &Answer::Entries(entries.collect())).is_ok()
            })?;
            result(serde_json::json!({"entries": count}))
        }
        Request::Lookup { map, key } => {
            let value = subject.lookup(&map, bytes(&key, "key")?)?;
            result(Entry { value: value.map(|value| hex::encode(&value)) })
        }
        Request::Update { map, key, value, rule } => {
            let changed = subject.update(&map, bytes(&key, "key")?, bytes(&value, "value")?, rule)?;
            result(Changed { changed })
        }
        Request::Delete { map, key } => result(Changed { changed: subject.delete(&map, bytes(&key, "key")?)? }),
        Request::Reload { path, params, program } => result(subject.reload(path, params, program)?),
    }
}
