// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ring buffers and perf buffers as programs see them, and the records that go to user space.
//!
//! A reader consumes everything after each packet, so a buffer can only be filled by the records of one packet.
//! Discarded records take room like others, but are not delivered.
//!
//! A ring buffer is memory: a new record begins with the old bytes at its place, and those that the program does not
//! write, such as the padding of a structure, reach the reader. So the bytes persist from packet to packet, with the
//! headers between them:
//!
//! ```text
//!  position % size:  │ length u32, busy and discarded bits │ page u32 │ record, up to whole words │ …
//! ```
//!
//! # Source
//! [Linux kernel/bpf/ringbuf.c: __bpf_ringbuf_reserve, bpf_ringbuf_commit], [Linux kernel/events/ring_buffer.c:
//! __perf_output_begin]

use std::collections::BTreeMap;

use flowloom_engine::Event;

use flowloom_isa::{MapDef, MapKind};

/// The size of the header before each record.
const HEADER_BYTES: u64 = 8;
const MAX_RECORD_BYTES: u64 = (1 << 30) - 1;
/// Flags in the length of a record: busy, and discarded.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// The pages of a ring buffer before its data, which the page number of a record includes.
const FIRST_PAGE: u64 = 3;
const PAGE_BITS: u32 = 12;

/// The size of a CPU's perf buffer, as the kernel engine opens them: 128 pages.
const PERF_BYTES: u64 = 128 << PAGE_BITS;
/// The overhead of an event in a perf buffer: the header of a sample, and the length of its bytes.
const SAMPLE_HEADER_BYTES: u64 = 8;
const SAMPLE_LENGTH_BYTES: u64 = 4;
/// The size of the lost-events record, which precedes the next event that finds room.
const LOST_BYTES: u64 = 24;

/// The queries of `ringbuf_query`.
const BPF_RB_AVAIL_DATA: u64 = 0;
const BPF_RB_RING_SIZE: u64 = 1;
const BPF_RB_CONS_POS: u64 = 2;
const BPF_RB_PROD_POS: u64 = 3;

/// The state of a reserved record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Reserved,
    Submitted,
    Discarded,
}

#[derive(Debug)]
struct Record {
    map: usize,
    cpu: u32,
    /// Its position in the ring buffer.
    position: u64,
    bytes: Vec<u8>,
    stage: Stage,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ring {
    size: u64,
    produced: u64,
    consumed: u64,
    /// The whole memory, once something was written.
    bytes: Vec<u8>,
}

impl Ring {
    /// Copies from a position, wrapping around at the end.
    fn read(&self, position: u64, out: &mut [u8]) {
        let at = (position % self.size) as usize;
        let (first, rest) = out.split_at_mut(out.len().min(self.bytes.len() - at));
        first.copy_from_slice(&self.bytes[at..at + first.len()]);
        rest.copy_from_slice(&self.bytes[..rest.len()]);
    }

    fn write(&mut self, position: u64, bytes: &[u8]) {
        let at = (position % self.size) as usize;
        let (first, rest) = bytes.split_at(bytes.len().min(self.bytes.len() - at));
        self.bytes[at..at + first.len()].copy_from_slice(first);
        self.bytes[..rest.len()].copy_from_slice(rest);
    }

    fn write_header(&mut self, position: u64, length: u32) {
        let page = FIRST_PAGE + ((position % self.size) >> PAGE_BITS);
        self.write(position, &[length.to_le_bytes(), (page as u32).to_le_bytes()].concat());
    }
}

/// The perf buffer of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Perf {
    used: u64,
    /// Whether events were lost since the last one that found room.
    lost: bool,
}

/// All buffers, and the reserved records of the current packet.
#[derive(Debug)]
pub struct Rings {
    /// By map; size 0 for other kinds of maps.
    rings: Vec<Ring>,
    /// By map and CPU.
    perf: BTreeMap<(usize, u32), Perf>,
    records: Vec<Record>,
}

impl Rings {
    /// The empty buffers of these maps.
    pub fn new(maps: &[MapDef]) -> Rings {
        let size = |map: &MapDef| if map.kind == MapKind::RingBuf { map.max_entries.into() } else { 0 };
        let rings = maps.iter().map(|map| Ring { size: size(map), ..Ring::default() }).collect();
        Rings { rings, perf: BTreeMap::new(), records: Vec::new() }
    }

    /// Reserves a record; returns its number, or `None` if there is no room.
    pub(super) fn reserve(&mut self, map: usize, len: u64) -> Option<usize> {
        let ring = self.rings.get_mut(map)?;
        let taken = len.checked_add(HEADER_BYTES)?.checked_next_multiple_of(8)?;
        // The producer position never reaches the consumer's.
        if len > MAX_RECORD_BYTES || ring.produced - ring.consumed + taken > ring.size.checked_sub(1)? {
            return None;
        }
        if ring.bytes.is_empty() {
            ring.bytes = vec![0; ring.size as usize];
        }
        let position = ring.produced;
        ring.write_header(position, len as u32 | BUSY);
        ring.produced += taken;
        // Records without bytes have addresses of their own.
        let mut bytes = Vec::with_capacity((len as usize).max(1));
        bytes.resize(len as usize, 0);
        ring.read(position + HEADER_BYTES, &mut bytes);
        self.records.push(Record { map, cpu: 0, position, bytes, stage: Stage::Reserved });
        Some(self.records.len() - 1)
    }

    /// Writes an event into the buffer of a CPU; returns whether there was room.
    pub(super) fn write(&mut self, map: usize, cpu: u32, bytes: Vec<u8>) -> bool {
        let perf = self.perf.entry((map, cpu)).or_default();
        let sample = SAMPLE_HEADER_BYTES + (bytes.len() as u64 + SAMPLE_LENGTH_BYTES).next_multiple_of(8);
        let taken = if perf.lost { sample + LOST_BYTES } else { sample };
        // Here too the producer never reaches the consumer.
        perf.lost = perf.used + taken > PERF_BYTES - 1;
        if perf.lost {
            return false;
        }
        perf.used += taken;
        self.records.push(Record { map, cpu, position: 0, bytes, stage: Stage::Submitted });
        true
    }

    /// Reserves, writes and submits a record; returns whether there was room.
    pub(super) fn output(&mut self, map: usize, bytes: &[u8]) -> bool {
        let Some(number) = self.reserve(map, bytes.len() as u64) else { return false };
        self.records[number].bytes.copy_from_slice(bytes);
        self.release(number, true)
    }

    /// Submits or discards a reserved record; returns whether there is one with this number.
    pub(super) fn release(&mut self, number: usize, submit: bool) -> bool {
        let Some(record) = self.records.get_mut(number).filter(|record| record.stage == Stage::Reserved) else {
            return false;
        };
        let (stage, mark) = if submit { (Stage::Submitted, 0) } else { (Stage::Discarded, DISCARDED) };
        record.stage = stage;
        let ring = &mut self.rings[record.map];
        ring.write_header(record.position, record.bytes.len() as u32 | mark);
        ring.write(record.position + HEADER_BYTES, &record.bytes);
        true
    }

    /// A reserved record.
    pub fn record(&self, number: usize) -> Option<&[u8]> {
        self.records.get(number).filter(|record| record.stage == Stage::Reserved).map(|record| &*record.bytes)
    }

    pub(super) fn record_mut(&mut self, number: usize) -> Option<&mut [u8]> {
        self.records.get_mut(number).filter(|record| record.stage == Stage::Reserved).map(|record| &mut *record.bytes)
    }

    /// The reserved records, with their numbers.
    pub fn reserved(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let all = self.records.iter().enumerate().filter(|(_, record)| record.stage == Stage::Reserved);
        all.map(|(number, record)| (number, &*record.bytes))
    }

    pub(super) fn is_any_reserved(&self) -> bool {
        self.records.iter().any(|record| record.stage == Stage::Reserved)
    }

    /// The answer of `ringbuf_query`.
    pub(super) fn query(&self, map: usize, what: u64) -> u64 {
        let Some(ring) = self.rings.get(map) else { return 0 };
        match what {
            BPF_RB_AVAIL_DATA => ring.produced - ring.consumed,
            BPF_RB_RING_SIZE => ring.size,
            BPF_RB_CONS_POS => ring.consumed,
            BPF_RB_PROD_POS => ring.produced,
            _ => 0,
        }
    }

    /// The reader consumes everything: the submitted records, by map and in order.
    pub(super) fn drain(&mut self, maps: &[MapDef]) -> Vec<Event> {
        for ring in &mut self.rings {
            ring.consumed = ring.produced;
        }
        self.perf.values_mut().for_each(|perf| perf.used = 0);
        if self.records.is_empty() {
            return Vec::new();
        }
        let mut records = std::mem::take(&mut self.records);
        records.retain(|record| record.stage == Stage::Submitted);
        records.sort_by_key(|record| record.map);
        let event = |record: Record| {
            let map = maps.get(record.map).map(|map| map.name.clone()).unwrap_or_default();
            Event { map, cpu: record.cpu, bytes: record.bytes }
        };
        records.into_iter().map(event).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::MapDef;

    fn ring(size: u32) -> (Vec<MapDef>, Rings) {
        let def = MapDef { name: "ring".into(), kind: MapKind::RingBuf, max_entries: size, ..MapDef::default() };
        let maps = vec![def];
        let rings = Rings::new(&maps);
        (maps, rings)
    }

    #[test]
    fn submitted_records_are_delivered_in_order() {
        let (maps, mut rings) = ring(4096);
        let [first, second, third] = [3, 4, 5].map(|len| rings.reserve(0, len).unwrap());
        rings.record_mut(third).unwrap().fill(7);
        assert!(rings.is_any_reserved());
        assert!(rings.release(third, true) && rings.release(second, false) && rings.release(first, true));
        assert!(!rings.release(first, true) && rings.record(first).is_none() && !rings.is_any_reserved());
        assert!(rings.output(0, &[1]));
        let bytes: Vec<Vec<u8>> = rings.drain(&maps).into_iter().map(|event| event.bytes).collect();
        assert_eq!(bytes, [vec![0; 3], vec![7; 5], vec![1]]);
        assert!(rings.drain(&maps).is_empty());
    }

    #[test]
    fn a_packet_can_fill_a_ring_and_the_next_finds_it_empty() {
        let (maps, mut rings) = ring(4096);
        // 4095 bytes can be reserved: 16 for each record of up to 8 bytes.
        assert!((0..255).all(|_| rings.output(0, &[0; 8])));
        assert!(!rings.output(0, &[0; 8]) && rings.reserve(0, 1 << 40).is_none());
        assert_eq!([0, 1, 2, 3, 4].map(|what| rings.query(0, what)), [4080, 4096, 0, 4080, 0]);
        assert_eq!(rings.drain(&maps).len(), 255);
        assert!(rings.output(0, &[0; 8]));
        assert_eq!([0, 2, 3].map(|what| rings.query(0, what)), [16, 4080, 4096]);
    }

    #[test]
    fn a_new_record_begins_with_the_old_bytes_of_the_ring() {
        let (maps, mut rings) = ring(4096);
        let mut put = |len: u64, written: &[u8], submit: bool| {
            let number = rings.reserve(0, len).unwrap();
            let record = rings.record_mut(number).unwrap();
            let found = record.to_vec();
            record[..written.len()].copy_from_slice(written);
            assert!(rings.release(number, submit));
            rings.drain(&maps);
            found
        };
        assert_eq!(put(40, &[7; 40], false), [0; 40]);
        assert_eq!(put(4000, &[8; 3999], true), [0; 4000]);
        // At 4056: 32 bytes never written, then the header of the first record and 8 bytes of it.
        let mut expected = vec![0; 32];
        expected.extend([40, 0, 0, 0x40, 3, 0, 0, 0]);
        expected.extend([7; 8]);
        assert_eq!(put(48, &[9; 34], true), expected);
        // At 16: more of the first record, then the header of the second, which begins at 48.
        let mut expected = vec![7; 24];
        expected.extend([4000_u32.to_le_bytes(), 3_u32.to_le_bytes()].concat());
        expected.extend([8; 8]);
        assert_eq!(put(40, &[], true), expected);
    }

    #[test]
    fn a_perf_buffer_has_the_size_of_the_kernel_engine_and_reports_losses() {
        let (maps, mut rings) = ring(4096);
        // 127 events take 16 bytes more than their payload; the last one would fill the buffer completely.
        for _ in 0..2 {
            let written = (0..300).filter(|_| rings.write(1, 0, vec![1; 4096 - 12])).count();
            assert_eq!((written, rings.drain(&maps).len()), (127, 127));
            // The lost-events record takes 24 bytes, and is written once.
            assert!((0..127).all(|_| rings.write(1, 0, vec![1; 4096 - 12])));
            assert!(!rings.write(1, 0, vec![1; 4096 - 24 - 12]));
            assert!(rings.write(1, 0, vec![1; 4096 - 72 - 12]));
            assert!(rings.write(1, 0, vec![]) && !rings.write(1, 0, vec![]));
            rings.drain(&maps);
            assert!(rings.write(1, 0, vec![0; 524_288 - 24 - 24]) && !rings.write(1, 0, vec![]));
            rings.drain(&maps);
            assert!(rings.write(1, 0, vec![]));
            rings.drain(&maps);
        }
    }
}
