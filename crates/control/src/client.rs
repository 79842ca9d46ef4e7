// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client of a control socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::directory::file;
use crate::error::{ControlError, Refusal};
use crate::hex;
use crate::protocol::{Answer, Changed, Entry, Greeting, MAGIC, Maps, PROTOCOL_VERSION, Reloaded, Request, UpdateRule};
use crate::report::Report;

/// The longest wait for an answer: a reload verifies and compiles a program.
const PATIENCE: Duration = Duration::from_secs(300);
/// The longest wait for a greeting, which takes no work.
const GREETING_PATIENCE: Duration = Duration::from_secs(2);

/// A connection to a run.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    greeting: Greeting,
}

impl Client {
    /// Connects to the socket at `path` and reads its greeting.
    ///
    /// # Errors
    /// Nothing listens there, or it speaks another protocol.
    pub fn connect(path: &Path) -> Result<Client, ControlError> {
        let stream = UnixStream::connect(path).map_err(|e| file(path, "opened", e))?;
        stream.set_read_timeout(Some(GREETING_PATIENCE)).map_err(|e| file(path, "opened", e))?;
        let mut client = Client {
            path: path.to_owned(),
            reader: BufReader::new(stream),
            greeting: Greeting::new("", "", "", "", Default::default()),
        };
        let line = client.line()?;
        if let Ok(Answer::Error(refusal)) = serde_json::from_str(&line) {
            return Err(refusal.into());
        }
        let greeting = serde_json::from_str(&line).ok();
        let greeting = greeting.filter(|g: &Greeting| g.flowloom == MAGIC && g.version == PROTOCOL_VERSION);
        client.greeting = greeting.ok_or_else(|| client.wrong("a greeting of version 1 of the protocol", &line))?;
        client.reader.get_ref().set_read_timeout(Some(PATIENCE)).map_err(|e| file(path, "opened", e))?;
        Ok(client)
    }

    /// What the run says of itself.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    fn wrong(&self, expected: &'static str, found: &str) -> ControlError {
        let found = found.chars().take(200).collect();
        ControlError::Protocol { path: self.path.clone(), expected, found }
    }

    fn line(&mut self) -> Result<String, ControlError> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => std::io::Error::new(ErrorKind::TimedOut, "its process is stopped, or hangs"),
            _ => error,
        });
        match read.map_err(|e| file(&self.path, "read", e))? {
            0 => Err(ControlError::Refused(Refusal::Environment("the run has ended".to_owned()))),
            _ => Ok(line),
        }
    }

    fn send(&mut self, request: &Request) -> Result<(), ControlError> {
        let mut line = serde_json::to_string(request).map_err(|e| file(&self.path, "written", e.into()))?;
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes()).map_err(|e| file(&self.path, "written", e))
    }

    /// Sends a request and reads its answer; `entries` gets those of a dump.
    fn answer(
        &mut self,
        request: &Request,
        entries: &mut dyn FnMut(Vec<(String, String)>),
    ) -> Result<Value, ControlError> {
        self.send(request)?;
        loop {
            let line = self.line()?;
            match serde_json::from_str(&line) {
                Ok(Answer::Ok(value)) => return Ok(value),
                Ok(Answer::Error(refusal)) => return Err(refusal.into()),
                Ok(Answer::Entries(some)) => entries(some),
                Err(_) => return Err(self.wrong("an answer", &line)),
            }
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ControlError> {
        let value = self.answer(request, &mut |_| ())?;
        let text = value.to_string();
        serde_json::from_value(value).map_err(|_| self.wrong("the result of the request", &text))
    }

    /// The statistics of the run.
    ///
    /// # Errors
    /// The run has ended or refuses.
    pub fn statistics(&mut self) -> Result<Report, ControlError> {
        self.ask(&Request::Statistics)
    }

    /// Its maps.
    ///
    /// # Errors
    /// As for [`Client::statistics`].
    pub fn maps(&mut self) -> Result<Maps, ControlError> {
        self.ask(&Request::Maps)
    }

    /// All entries of a map, each with its key and its values; entries that change meanwhile may be included or not.
    ///
    /// # Errors
    /// As for [`Client::statistics`]; there is no such map, or it has no entries that can be read.
    pub fn dump(&mut self, map: &str, visitor: &mut dyn FnMut(Vec<u8>, Vec<u8>)) -> Result<(), ControlError> {
        let mut is_wrong = false;
        self.answer(&Request::Dump { map: map.to_owned() }, &mut |entries| {
            for (key, value) in entries {
                match (hex::decode(&key), hex::decode(&value)) {
                    (Some(key), Some(value)) => visitor(key, value),
                    _ => is_wrong = true,
                }
            }
        })?;
        if is_wrong { Err(self.wrong("entries in hexadecimal digits", "others")) } else { Ok(()) }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As for [`Client::dump`].
    pub fn lookup(&mut self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, ControlError> {
        let entry: Entry = self.ask(&Request::Lookup { map: map.to_owned(), key: hex::encode(key) })?;
        let Some(value) = entry.value else { return Ok(None) };
        hex::decode(&value).map(Some).ok_or_else(|| self.wrong("a value in hexadecimal digits", &value))
    }

    /// Writes an entry; returns whether the condition held.
    ///
    /// # Errors
    /// As for [`Client::dump`]; the map is full, or takes no entries.
    pub fn update(&mut self, map: &str, key: &[u8], value: &[u8], rule: UpdateRule) -> Result<bool, ControlError> {
        let (map, key, value) = (map.to_owned(), hex::encode(key), hex::encode(value));
        let changed: Changed = self.ask(&Request::Update { map, key, value, rule })?;
        Ok(changed.changed)
    }

    /// Deletes an entry; returns whether it existed.
    ///
    /// # Errors
    /// As for [`Client::dump`]; entries of the map cannot be deleted.
    pub fn delete(&mut self, map: &str, key: &[u8]) -> Result<bool, ControlError> {
        let changed: Changed = self.ask(&Request::Delete { map: map.to_owned(), key: hex::encode(key) })?;
        Ok(changed.changed)
    }

    /// Has the run go on with another program; the run's own file is read again if `path` is missing.
    ///
    /// # Errors
    /// As for [`Client::statistics`]; the program is invalid or refused. The old one runs on then.
    pub fn reload(
        &mut self,
        path: Option<String>,
        params: Vec<(String, String)>,
        program: Option<String>,
    ) -> Result<Reloaded, ControlError> {
        self.ask(&Request::Reload { path, params, program })
    }
}
