// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The test bed: two network namespaces without names, which the kernel removes with the process, however it ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;

use flowloom_exec::Interface;

use crate::error::LabError;
use crate::sys;

/// The wires between generator and function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wires {
    /// veth pairs with this number of queues: `near1`, `near2`, ... of the function, `far1`, ... of the generator.
    Veth { queues: u32 },
    /// None: the function itself makes the interfaces `far1`, ... of the generator.
    Tap,
    /// `far1` is wired to `far2`, without a function between.
    Cable,
}

/// Two namespaces and the wires between them.
#[derive(Debug)]
pub struct Bed {
    here: File,
    there: File,
    wires: Wires,
    ports: u32,
}

fn ip(words: &str) -> Result<(), LabError> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output = output.map_err(|source| LabError::Tool { tool: "ip", package: "iproute2", source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Command { command: format!("ip {words}"), output: said })
}

/// A new namespace, made by a thread of its own. Nothing in it sends by itself.
fn namespace() -> Result<File, LabError> {
    in_thread(|| {
        let made = sys::leave().map_err(|e| LabError::of_call("make a network namespace", e))?;
        // Without IPv6 in the kernel there is no such file.
        _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        Ok(made)
    })
}

/// Runs a closure in a thread: it may move to another namespace.
fn in_thread<T: Send>(run: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
    std::thread::scope(|scope| joined(scope.spawn(run).join()))
}

/// The result of a thread, whose panic goes on here.
pub(crate) fn joined<T>(result: std::thread::Result<Result<T, LabError>>) -> Result<T, LabError> {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Bed {
    /// Makes a test bed whose function has this number of ports.
    ///
    /// # Errors
    /// A privilege or `ip` is missing.
    pub fn new(wires: Wires, ports: u32) -> Result<Bed, LabError> {
        let there = namespace()?;
        let here = if wires == Wires::Tap {
            there.try_clone().map_err(|e| LabError::of_call("copy", e))?
        } else {
            namespace()?
        };
        let bed = Bed { here, there, wires, ports };
        match wires {
            Wires::Tap => {}
            Wires::Cable => bed.in_there(|| {
                ip("link add far1 type veth peer name far2")?;
                ["far1", "far2"].iter().try_for_each(|name| ip(&format!("link set {name} up")))
            })?,
            Wires::Veth { queues } => {
                let path = format!("/proc/{}/fd/{}", std::process::id(), bed.there.as_raw_fd());
                bed.in_here(|| {
                    for port in 1..=ports {
                        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
                        ip(&format!(
                            "link add near{port} {queues} type veth peer name far{port} {queues} netns {path}"
                        ))?;
                        ip(&format!("link set near{port} up"))?;
                    }
                    Ok(())
                })?;
                bed.in_there(|| (1..=ports).try_for_each(|port| ip(&format!("link set far{port} up"))))?;
            }
        }
        Ok(bed)
    }

    /// The wires.
    pub fn wires(&self) -> Wires {
        self.wires
    }

    /// Runs a closure in the function's namespace, in a thread of its own.
    pub(crate) fn in_here<T: Send>(&self, run: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
        in_thread(|| {
            self.enter_here()?;
            run()
        })
    }

    fn in_there<T: Send>(&self, run: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
        in_thread(|| {
            self.enter_there()?;
            run()
        })
    }

    /// Moves the calling thread to the function's namespace.
    pub(crate) fn enter_here(&self) -> Result<(), LabError> {
        sys::enter(&self.here).map_err(|e| LabError::of_call("enter a network namespace", e))
    }

    /// Moves the calling thread to the generator's namespace.
    pub(crate) fn enter_there(&self) -> Result<(), LabError> {
        sys::enter(&self.there).map_err(|e| LabError::of_call("enter a network namespace", e))
    }

    /// The function's interfaces; none with [`Wires::Tap`] and [`Wires::Cable`]. The thread is in its namespace.
    pub(crate) fn near(&self) -> Result<Vec<Interface>, LabError> {
        let ports = if matches!(self.wires, Wires::Veth { .. }) { self.ports } else { 0 };
        (1..=ports).map(|port| Ok(Interface::find(port, &format!("near{port}"))?)).collect()
    }

    /// The number of the function's ports.
    pub fn ports(&self) -> u32 {
        self.ports
    }
}

/// The packets that an interface of the thread's namespace has received.
pub(crate) fn received(name: &str) -> Result<u64, LabError> {
    let failed = |source| LabError::of_call("read the packets that an interface has received", source);
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").map_err(failed)?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:")));
    let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    count.ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, format!("`{name}` is not in `{text}`"))))
}
