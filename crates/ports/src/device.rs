// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of devices.

use std::os::fd::RawFd;

use flowloom_engine::{Frame, Port, Verdict};

use crate::PortsError;

/// Called with each batch that a device has received: runs the engine and sets the fates.
pub type RunBatch<'a> = dyn FnMut(&mut [Frame<'_>]) -> Result<(), PortsError> + 'a;

/// A packet that leaves, by copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure<'a> {
    /// The egress port.
    pub port: Port,
    /// The verdict of its packet.
    pub verdict: Verdict,
    /// The arrival time of its packet.
    pub time_ns: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Counters of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceCounters {
    /// The packets accepted for transmission, without those that the driver then refused.
    pub sent: u64,
    /// Their bytes, and those of packets that the driver then refused.
    pub sent_bytes: u64,
    /// The packets dropped because a transmission ring or queue was full.
    pub tx_full: u64,
    /// The packets that the device refused to transmit, e.g. since they are longer than the MTU or its link is down.
    pub tx_refused: u64,
    /// The packets that arrived, but were dropped before the engine: no free buffer, a full reception ring, too long,
    /// or merged by an offload.
    pub rx_missed: u64,
}

impl DeviceCounters {
    /// The sums of two devices.
    #[must_use]
    pub fn plus(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            tx_full: self.tx_full + other.tx_full,
            tx_refused: self.tx_refused + other.tx_refused,
            rx_missed: self.rx_missed + other.rx_missed,
        }
    }
}

/// A group of ports that share packet buffers: a source, a sink, or both.
pub trait Device {
    /// The name in messages, e.g. `af_xdp eth0,eth1`.
    fn name(&self) -> &str;

    /// The ports, each with its interface; none if [`Device::takes_all`].
    fn ports(&self) -> Vec<(Port, String)>;

    /// True if it accepts departures through every port that no other device has, and passed packets: a capture.
    fn takes_all(&self) -> bool {
        false
    }

    /// True if its packets arrive at the time of the clock, false if each has a recorded time.
    fn is_live(&self) -> bool {
        true
    }

    /// True if it will receive nothing more.
    fn is_ended(&self) -> bool {
        false
    }

    /// True if nothing tells when something arrives: the loop looks again after a short sleep at most.
    fn is_polled(&self) -> bool {
        false
    }

    /// True if packets that were accepted for transmission wait for room in the driver: the loop flushes again after a
    /// short sleep at most.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Source: receives at most one batch for each of its queues, without waiting, and calls `run` with each.
    ///
    /// After the call, frames with fate [`flowloom_engine::Fate::Redirect`], whose port is one of this device, are
    /// transmitted from their buffers in order, even if the call failed; the buffers of all others are released.
    /// `now_ns` is the time of live packets. Returns the number of frames.
    ///
    /// # Errors
    /// `run` failed, an interface has disappeared, or a system call failed.
    fn receive(&mut self, now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError>;

    /// Sink: transmits a copy of a packet through one of its ports, at the latest with [`Device::flush`]. A packet that
    /// cannot be sent is counted.
    ///
    /// # Errors
    /// An interface has disappeared, or the sink failed.
    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError>;

    /// Sink: transmits what is buffered, and reclaims buffers of completed transmissions.
    ///
    /// # Errors
    /// As for [`Device::transmit`].
    fn flush(&mut self) -> Result<(), PortsError> {
        Ok(())
    }

    /// Checks that the interfaces still exist, and that all their packets still come here.
    ///
    /// # Errors
    /// [`PortsError::Disappeared`], [`PortsError::Detached`], [`PortsError::Overtaken`],
    /// [`PortsError::QueuesChanged`].
    fn check(&mut self) -> Result<(), PortsError> {
        Ok(())
    }

    /// Appends the file descriptors that are readable when there is something to receive.
    fn wait_on(&self, _fds: &mut Vec<RawFd>) {}

    /// The counters so far.
    fn counters(&mut self) -> DeviceCounters;

    /// Checks between calls that no buffer is lost.
    ///
    /// # Panics
    /// A buffer is lost or owned twice.
    fn check_invariants(&self) {}
}
