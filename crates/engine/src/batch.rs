// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets in batches that are changed in place: the interface between engines and sources of packets.
//!
//! ```text
//!  buffer  ├── headroom ──┤── packet ──┤── tailroom ──┤
//!          0            start         end        buffer.len()
//! ```
//!
//! A source hands out buffers with headroom and tailroom. An engine changes the bytes, may move start and end, and sets
//! the [`Fate`] of each frame; the owner of the buffers then transmits or reuses them.

use std::borrow::BorrowMut;

use crate::{Choices, Datapath, EngineError, Event, Output, Packet, Port, Ports, Verdict};

/// The headroom in bytes that engines expect: programs may move the start of a packet that far, less
/// [`FRAME_RECORD_BYTES`]. A frame with less headroom refuses such moves earlier.
pub const HEADROOM_BYTES: usize = 256;

/// The bytes at the beginning of the headroom that a packet cannot grow over, as in the kernel, which stores
/// `struct xdp_frame` there.
pub const FRAME_RECORD_BYTES: usize = 40;

/// The verdict on a frame, and its egress port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fate {
    /// The function failed on this packet, which is dropped.
    #[default]
    Aborted,
    /// Dropped.
    Drop,
    /// Passed to the receiver of the ingress port.
    Pass,
    /// Sent out of the ingress port.
    Tx,
    /// Sent out of this port.
    Redirect(Port),
    /// The frame itself does not leave, but counts under this verdict: all its outputs are in the list of further
    /// outputs, which may be empty.
    Replaced(Verdict),
}

impl Fate {
    /// The verdict.
    pub fn verdict(self) -> Verdict {
        match self {
            Fate::Aborted => Verdict::Aborted,
            Fate::Drop => Verdict::Drop,
            Fate::Pass => Verdict::Pass,
            Fate::Tx => Verdict::Tx,
            Fate::Redirect(_) => Verdict::Redirect,
            Fate::Replaced(verdict) => verdict,
        }
    }
}

/// A packet in a buffer with headroom and tailroom.
///
/// Invariant: `start <= end <= buffer.len()`.
///
/// # Layout
/// A cache line, so that two cores may run neighbours.
#[derive(Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Frame<'a> {
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
    /// The ingress port.
    pub port: Port,
    /// The arrival time in nanoseconds; never before that of an earlier frame of the run.
    pub time_ns: u64,
    /// The verdict, set by the engine. [`Fate::Aborted`] until then.
    pub fate: Fate,
}

/// An empty frame, which takes the place of one that is moved for a while.
impl Default for Frame<'_> {
    fn default() -> Self {
        Frame { buffer: &mut [], start: 0, end: 0, port: Port(0), time_ns: 0, fate: Fate::Aborted }
    }
}

impl<'a> Frame<'a> {
    /// A frame whose packet is `buffer[start..end]`.
    ///
    /// # Panics
    /// The packet is not within the buffer.
    #[inline]
    pub fn new(buffer: &'a mut [u8], start: usize, end: usize, port: Port, time_ns: u64) -> Frame<'a> {
        assert!(start <= end && end <= buffer.len(), "packet {start}..{end} in a buffer of {} bytes", buffer.len());
        Frame { buffer, start, end, port, time_ns, fate: Fate::Aborted }
    }

    /// The whole buffer: headroom, packet, tailroom.
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// The offset of the first byte of the packet in the buffer: the headroom in bytes.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// The offset of the end of the packet in the buffer.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// The length of the packet in bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.end - self.start
    }

    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The packet.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Sets start and end of the packet. The bytes of the buffer stay as they are: after growth, the new ones have
    /// unspecified contents.
    ///
    /// # Panics
    /// The packet would not be within the buffer.
    #[inline]
    pub fn set_bounds(&mut self, start: usize, end: usize) {
        let len_bytes = self.buffer.len();
        assert!(start <= end && end <= len_bytes, "packet {start}..{end} in a buffer of {len_bytes} bytes");
        (self.start, self.end) = (start, end);
    }

    /// Replaces the packet by `bytes`; returns false, and changes nothing, if the buffer has no room for them. The end
    /// stays where it is if the headroom suffices, since most changes are at the front.
    pub fn replace(&mut self, bytes: &[u8]) -> bool {
        let start = match self.end.checked_sub(bytes.len()) {
            Some(start) if start >= FRAME_RECORD_BYTES.min(self.start) => start,
            _ if bytes.len() <= self.buffer.len() - self.start => self.start,
            _ => return false,
        };
        let end = start + bytes.len();
        self.buffer[start..end].copy_from_slice(bytes);
        (self.start, self.end) = (start, end);
        true
    }
}

/// An engine that changes packets in place, a batch a call.
///
/// Packets take effect one after the other, in the order of the batch, each atomically.
pub trait InPlace {
    /// The name of the engine, as in `--engine`.
    fn name(&self) -> &str;

    /// Sets the ports from now on; the default is [`Ports::default`].
    fn bind_ports(&mut self, ports: &Ports);

    /// Runs the frames: changes their bytes and sets [`Frame::fate`] of each.
    ///
    /// `extra` receives further outputs (clones, broadcasts) with the index of their frame, in ascending order of
    /// frames; those of a frame leave before the frame itself. Their ports are egress ports.
    ///
    /// # Errors
    /// The engine itself failed; the fates of the frames are unspecified. A function that fails on a packet is
    /// [`Fate::Aborted`].
    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError>;

    /// Removes every context whose deadline is at or before `now_ns`.
    ///
    /// # Errors
    /// The engine cannot access its state.
    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError>;

    /// A step of [`InPlace::sweep`], between two batches: goes on until `share` of the sweep is done, 1 for all of it,
    /// but visits at most `most` entries. Returns whether the sweep has ended; the next step then begins another one.
    /// Engines that have no steps do all at once.
    ///
    /// # Errors
    /// Those of [`InPlace::sweep`].
    fn sweep_step(&mut self, now_ns: u64, _share: f64, _most: u32) -> Result<bool, EngineError> {
        self.sweep(now_ns)?;
        Ok(true)
    }

    /// Appends the records for user space since the last call, in order.
    fn take_events(&mut self, _events: &mut Vec<Event>) {}
}

/// Runs an engine that processes single packets on frames, by copying each packet.
///
/// The random values of a packet depend on the seed and on the number of packets before it alone.
#[derive(Debug)]
pub struct Copying<D: ?Sized> {
    datapath: Box<D>,
    seed: u64,
    /// The number of packets so far.
    packets: u64,
    /// The packets that the engine cannot run, which are aborted.
    refused: u64,
    events: Vec<Event>,
}

impl<D: Datapath + ?Sized> Copying<D> {
    /// Wraps `datapath`; `seed` is that of the random values that the function draws.
    pub fn new(datapath: Box<D>, seed: u64) -> Copying<D> {
        Copying { datapath, seed, packets: 0, refused: 0, events: Vec::new() }
    }

    /// The wrapped engine, e.g. for its state.
    pub fn datapath_mut(&mut self) -> &mut D {
        &mut self.datapath
    }

    /// The wrapped engine.
    pub fn datapath_ref(&self) -> &D {
        &self.datapath
    }

    /// The number of frames that the engine cannot run ([`Datapath::refuses`]); they are [`Fate::Aborted`].
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl<D: Datapath + ?Sized> Copying<D> {
    /// As [`InPlace::run`], on frames that need not lie side by side.
    ///
    /// # Errors
    /// Those of [`InPlace::run`].
    pub fn run_each<'b, F: BorrowMut<Frame<'b>>>(
        &mut self,
        frames: &mut [F],
        extra: &mut Vec<(usize, Output)>,
    ) -> Result<(), EngineError> {
        for (index, frame) in frames.iter_mut().enumerate() {
            let frame = frame.borrow_mut();
            let choices = Choices::seeded(frame.time_ns, self.seed, self.packets);
            self.packets += 1;
            let packet = Packet { bytes: frame.bytes(), port: frame.port };
            if self.datapath.refuses(&packet).is_some() {
                self.refused += 1;
                frame.fate = Fate::Aborted;
                continue;
            }
            let mut outcome = self.datapath.process(&packet, &choices)?;
            self.events.append(&mut outcome.events);
            frame.fate = match outcome.verdict {
                Verdict::Aborted => Fate::Aborted,
                Verdict::Drop => Fate::Drop,
                verdict => Fate::Replaced(verdict),
            };
            // The last output is that of the verdict; clones come before it.
            let own = match outcome.outputs.last() {
                Some(last) if matches!(frame.fate, Fate::Replaced(_)) && frame.replace(&last.bytes) => {
                    frame.fate = match outcome.verdict {
                        Verdict::Pass => Fate::Pass,
                        Verdict::Tx => Fate::Tx,
                        _ => Fate::Redirect(last.port),
                    };
                    outcome.outputs.len() - 1
                }
                _ => outcome.outputs.len(),
            };
            outcome.outputs.truncate(own);
            extra.extend(outcome.outputs.into_iter().map(|output| (index, output)));
        }
        Ok(())
    }
}

impl<D: Datapath + ?Sized> InPlace for Copying<D> {
    fn name(&self) -> &str {
        self.datapath.name()
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.datapath.bind_ports(ports);
    }

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        self.run_each(frames, extra)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.datapath.sweep(now_ns)
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Snapshot};

    /// Answers by the first byte of the packet.
    #[derive(Default)]
    struct Scripted {
        seen: Vec<(Vec<u8>, Choices)>,
    }

    impl Datapath for Scripted {
        fn name(&self) -> &str {
            "scripted"
        }

        fn bind_ports(&mut self, _: &Ports) {}

        fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
            self.seen.push((packet.bytes.to_vec(), *choices));
            let output = |port, bytes: &[u8]| Output { port: Port(port), bytes: bytes.to_vec() };
            let with = |verdict, outputs| Outcome { verdict, outputs, events: Vec::new() };
            Ok(match packet.bytes[0] {
                0 => Outcome::without_output(Verdict::Aborted),
                1 => with(Verdict::Drop, vec![output(5, b"clone")]),
                2 => Outcome::sent(Verdict::Pass, packet.port, b"longer than before".to_vec()),
                3 => Outcome::sent(Verdict::Tx, packet.port, b"t".to_vec()),
                4 => with(Verdict::Redirect, vec![output(7, b"first"), output(8, b"last")]),
                5 => Outcome::sent(Verdict::Tx, packet.port, vec![9; 64]),
                _ => Outcome::without_output(Verdict::Redirect),
            })
        }

        fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
            Ok(())
        }

        fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
            Ok(Snapshot::default())
        }

        fn restore(&mut self, _: &Snapshot) -> Result<(), EngineError> {
            Ok(())
        }
    }

    #[test]
    fn outcomes_become_fates_and_further_outputs() {
        let mut buffers: Vec<[u8; 48]> = (0..7).map(|kind| [kind; 48]).collect();
        let mut frames: Vec<Frame<'_>> =
            buffers.iter_mut().zip(10..).map(|(buffer, time)| Frame::new(buffer, 20, 26, Port(3), time)).collect();
        let mut engine = Copying::new(Box::new(Scripted::default()), 9);
        let mut extra = Vec::new();
        engine.run(&mut frames, &mut extra).expect("never fails");
        let found: Vec<(Fate, &[u8])> = frames.iter().map(|frame| (frame.fate, frame.bytes())).collect();
        let expected: [(Fate, &[u8]); 7] = [
            (Fate::Aborted, &[0; 6]),
            (Fate::Drop, &[1; 6]),
            (Fate::Pass, b"longer than before"),
            (Fate::Tx, b"t"),
            (Fate::Redirect(Port(8)), b"last"),
            // The output is longer than the buffer.
            (Fate::Replaced(Verdict::Tx), &[5; 6]),
            (Fate::Replaced(Verdict::Redirect), &[6; 6]),
        ];
        assert_eq!(found, expected);
        let extra: Vec<(usize, u32, usize)> = extra.iter().map(|(at, o)| (*at, o.port.0, o.bytes.len())).collect();
        assert_eq!(extra, [(1, 5, 5), (4, 7, 5), (5, 3, 64)]);
        let seen = &engine.datapath_mut().seen;
        for (index, (bytes, choices)) in seen.iter().enumerate() {
            assert_eq!((bytes.len(), *choices), (6, Choices::seeded(10 + index as u64, 9, index as u64)));
        }
    }

    #[test]
    fn a_replaced_packet_stays_within_its_room() {
        let mut buffer = [0; 100];
        let mut frame = Frame::new(&mut buffer, 50, 60, Port(1), 0);
        assert!(frame.replace(&[1; 20]));
        assert_eq!((frame.start(), frame.end()), (40, 60));
        // Below the kernel's record there is no room: the packet grows at its end.
        assert!(frame.replace(&[2; 21]));
        assert_eq!((frame.start(), frame.end()), (40, 61));
        assert!(!frame.replace(&[3; 61]));
        assert_eq!(frame.bytes(), [2; 21]);
        assert!(frame.replace(&[3; 60]));
        frame.set_bounds(0, 10);
        assert!(frame.replace(&[4; 12]));
        assert_eq!((frame.start(), frame.bytes()), (0, &[4; 12][..]));
    }

    #[test]
    #[should_panic(expected = "packet 5..9 in a buffer of 8 bytes")]
    fn bounds_are_checked() {
        Frame::new(&mut [0; 8], 5, 9, Port(1), 0);
    }
}
