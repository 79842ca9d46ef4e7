// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of devices and of the packet loop.

use std::io;

use flowloom_engine::{EngineError, Port};
use flowloom_exec::LiveError;
use flowloom_trace::TraceError;

/// An error of this crate.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// An interface does not exist or runs another program.
    #[error(transparent)]
    Interface(#[from] LiveError),
    /// A privilege is missing.
    #[error("{device}: could not {action}: {source}; this needs {needed}: run as root, or grant it with `setcap`")]
    Privilege { device: String, action: String, needed: &'static str, source: io::Error },
    /// The memory of packets may not be locked.
    #[error(
        "{device}: could not lock {bytes} bytes of packet memory: {source}; the limit is {limit_bytes} bytes: raise it \
         (`ulimit -l unlimited`), grant CAP_IPC_LOCK, or use --mode raw, which locks no memory"
    )]
    LockedMemory { device: String, bytes: usize, limit_bytes: u64, source: io::Error },
    /// The driver or the kernel lacks a feature.
    #[error("{device}: {feature} is not supported: {source}; {remedy}")]
    Unsupported { device: String, feature: String, remedy: String, source: io::Error },
    /// A receive queue is used by another socket.
    #[error("{device}: queue {queue} is used by another AF_XDP socket; end its process (`ss --xdp -p` names it)")]
    QueueInUse { device: String, queue: u32 },
    /// The interface has fewer queues.
    #[error("interface `{interface}` has {found} receive queues, but queue {expected} was requested; see `ethtool -l`")]
    NoQueue { interface: String, found: u32, expected: u32 },
    /// An interface was removed during the run.
    #[error("interface `{interface}` of port {port} was removed; the run ends")]
    Disappeared { interface: String, port: Port },
    /// Another process has detached the program that takes the packets.
    #[error(
        "interface `{interface}` of port {port}: another process has detached the program of this run, so that packets \
         reach the network stack; the run ends"
    )]
    Detached { interface: String, port: Port },
    /// Another process has put a program before the one that keeps packets from the network stack.
    #[error(
        "interface `{interface}` of port {port}: another process has put the program `{program}` before that of this \
         run, and may let packets reach the network stack; the run ends, start it again to be first"
    )]
    Overtaken { interface: String, port: Port, program: String },
    /// The receive queues of an interface were changed during the run.
    #[error(
        "interface `{interface}` of port {port} now has {found} receive queues, but the run began with {expected}: \
         packets of the others are dropped; the run ends, start it again"
    )]
    QueuesChanged { interface: String, port: Port, found: u32, expected: u32 },
    /// Two devices have the same port.
    #[error("port {port} is bound twice, to {first} and to {second}; each port has one interface")]
    BoundTwice { port: Port, first: String, second: String },
    /// A port number is out of range.
    #[error("port {port} of {device} is not below {}", flowloom_engine::PORT_COUNT)]
    PortNumber { port: Port, device: String },
    /// An option is out of range.
    #[error("{device}: {option} is {found}, expected {expected}")]
    Option { device: String, option: &'static str, found: String, expected: String },
    /// A library is missing or refuses to start.
    #[error("{device}: {what}; {remedy}")]
    Library { device: String, what: String, remedy: String },
    /// A system call failed.
    #[error("{device}: could not {action}: {source}")]
    System { device: String, action: String, source: io::Error },
    /// The engine failed on a batch, a sweep or its state.
    #[error("packet {packet} or one of its batch: {source}")]
    Engine { packet: u64, source: EngineError },
    /// A capture could not be read or written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl PortsError {
    /// True if the environment lacks something: a privilege, an interface, a feature, memory. The command exits with
    /// code 3.
    pub fn is_environment(&self) -> bool {
        match self {
            PortsError::Interface(_)
            | PortsError::Privilege { .. }
            | PortsError::LockedMemory { .. }
            | PortsError::Unsupported { .. }
            | PortsError::QueueInUse { .. }
            | PortsError::NoQueue { .. }
            | PortsError::Disappeared { .. }
            | PortsError::Detached { .. }
            | PortsError::Overtaken { .. }
            | PortsError::QueuesChanged { .. }
            | PortsError::Library { .. }
            | PortsError::System { .. } => true,
            PortsError::BoundTwice { .. }
            | PortsError::PortNumber { .. }
            | PortsError::Option { .. }
            | PortsError::Engine { .. }
            | PortsError::Trace(_) => false,
        }
    }

    /// The error of a system call: one for missing privileges if `needed` would have permitted it.
    pub(crate) fn of_call(device: &str, action: &str, needed: &'static str, source: io::Error) -> PortsError {
        let (device, action) = (device.to_owned(), action.to_owned());
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => PortsError::Privilege { device, action, needed, source },
            _ => PortsError::System { device, action, source },
        }
    }
}

/// The capabilities for programs on interfaces.
pub(crate) const BPF_NEEDS: &str = "CAP_BPF and CAP_NET_ADMIN";
/// The capability for sockets that see every packet.
pub(crate) const RAW_NEEDS: &str = "CAP_NET_RAW";
/// The capability for creating and changing interfaces.
pub(crate) const ADMIN_NEEDS: &str = "CAP_NET_ADMIN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_privileges_have_a_remedy() {
        let of = |number| PortsError::of_call("af_xdp eth0", "bind", RAW_NEEDS, io::Error::from_raw_os_error(number));
        let message = of(libc::EPERM).to_string();
        assert!(message.starts_with("af_xdp eth0: could not bind: ") && message.contains("CAP_NET_RAW"), "{message}");
        assert!(!of(libc::EIO).to_string().contains("needs"));
        assert!(of(libc::EPERM).is_environment());
    }
}
