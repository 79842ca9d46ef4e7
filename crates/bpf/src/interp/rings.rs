//! Ring buffers, as far as programs see them, and what goes through them to user space.
//!
//! A reader takes everything out after each packet, so only what one packet writes can fill a buffer. Records that were
//! given up take room as others do, but reach nobody.

use flowloom_engine::Event;

use super::maps::Map;
use crate::map_kind::MapKind;

/// The kernel puts so much before each record.
const HEADER_BYTES: u64 = 8;
/// The longest record.
const MAX_RECORD_BYTES: u64 = (1 << 30) - 1;

/// What `ringbuf_query` can be asked.
const BPF_RB_AVAIL_DATA: u64 = 0;
const BPF_RB_RING_SIZE: u64 = 1;
const BPF_RB_CONS_POS: u64 = 2;
const BPF_RB_PROD_POS: u64 = 3;

/// What has become of a reserved record.
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
    bytes: Vec<u8>,
    stage: Stage,
}

/// The positions of one ring buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ring {
    size: u64,
    produced: u64,
    consumed: u64,
}

/// All ring buffers and the records of the packet that runs.
#[derive(Debug)]
pub(super) struct Rings {
    /// By map; those that are no ring buffers have size 0.
    rings: Vec<Ring>,
    records: Vec<Record>,
}

impl Rings {
    pub(super) fn new(maps: &[Map]) -> Rings {
        let size = |map: &Map| if map.def().kind == MapKind::RingBuf { map.def().max_entries.into() } else { 0 };
        let rings = maps.iter().map(|map| Ring { size: size(map), ..Ring::default() }).collect();
        Rings { rings, records: Vec::new() }
    }

    /// Takes room for a record; its number, or `None` where there is no room.
    pub(super) fn reserve(&mut self, map: usize, len: u64) -> Option<usize> {
        let ring = self.rings.get_mut(map)?;
        let taken = len.checked_add(HEADER_BYTES)?.checked_next_multiple_of(8)?;
        // The position of the writer never catches up with that of the reader.
        if len > MAX_RECORD_BYTES || ring.produced - ring.consumed + taken > ring.size.checked_sub(1)? {
            return None;
        }
        ring.produced += taken;
        self.records.push(Record { map, cpu: 0, bytes: vec![0; len as usize], stage: Stage::Reserved });
        Some(self.records.len() - 1)
    }

    /// Writes a record that needs no reserving: into a ring buffer that has been asked for room, or the buffer of a CPU.
    pub(super) fn write(&mut self, map: usize, cpu: u32, bytes: Vec<u8>) {
        self.records.push(Record { map, cpu, bytes, stage: Stage::Submitted });
    }

    /// Takes room and writes; whether there was room.
    pub(super) fn output(&mut self, map: usize, bytes: &[u8]) -> bool {
        let Some(number) = self.reserve(map, bytes.len() as u64) else { return false };
        self.records[number].bytes.copy_from_slice(bytes);
        self.records[number].stage = Stage::Submitted;
        true
    }

    /// Hands a reserved record on, or gives it up; whether it was one.
    pub(super) fn release(&mut self, number: usize, submit: bool) -> bool {
        match self.records.get_mut(number) {
            Some(record) if record.stage == Stage::Reserved => {
                record.stage = if submit { Stage::Submitted } else { Stage::Discarded };
                true
            }
            _ => false,
        }
    }

    /// The bytes of a record while it is reserved.
    pub(super) fn record(&self, number: usize) -> Option<&[u8]> {
        self.records.get(number).filter(|record| record.stage == Stage::Reserved).map(|record| &*record.bytes)
    }

    pub(super) fn record_mut(&mut self, number: usize) -> Option<&mut [u8]> {
        self.records.get_mut(number).filter(|record| record.stage == Stage::Reserved).map(|record| &mut *record.bytes)
    }

    /// Whether a record was neither handed on nor given up.
    pub(super) fn is_any_reserved(&self) -> bool {
        self.records.iter().any(|record| record.stage == Stage::Reserved)
    }

    /// What `ringbuf_query` answers.
    pub(super) fn query(&self, map: usize, what: u64) -> u64 {
        let ring = self.rings.get(map).copied().unwrap_or_default();
        match what {
            BPF_RB_AVAIL_DATA => ring.produced - ring.consumed,
            BPF_RB_RING_SIZE => ring.size,
            BPF_RB_CONS_POS => ring.consumed,
            BPF_RB_PROD_POS => ring.produced,
            _ => 0,
        }
    }

    /// The reader takes everything: what was handed on, by map and in each as it was written.
    pub(super) fn drain(&mut self, maps: &[Map]) -> Vec<Event> {
        for ring in &mut self.rings {
            ring.consumed = ring.produced;
        }
        if self.records.is_empty() {
            return Vec::new();
        }
        let mut records = std::mem::take(&mut self.records);
        records.retain(|record| record.stage == Stage::Submitted);
        records.sort_by_key(|record| record.map);
        let event = |record: Record| {
            let map = maps.get(record.map).map(|map| map.def().name.clone()).unwrap_or_default();
            Event { map, cpu: record.cpu, bytes: record.bytes }
        };
        records.into_iter().map(event).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::program::MapDef;

    fn ring(size: u32) -> (Vec<Map>, Rings) {
        let def = MapDef { name: "ring".into(), kind: MapKind::RingBuf, max_entries: size, ..MapDef::default() };
        let maps = vec![Map::new(&def, 1)];
        let rings = Rings::new(&maps);
        (maps, rings)
    }

    #[test]
    fn records_come_out_in_order_without_those_given_up() {
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
        // 4095 bytes can be taken: 16 for each record of up to 8 bytes.
        assert!((0..255).all(|_| rings.output(0, &[0; 8])));
        assert!(!rings.output(0, &[0; 8]) && rings.reserve(0, 1 << 40).is_none());
        assert_eq!([0, 1, 2, 3, 4].map(|what| rings.query(0, what)), [4080, 4096, 0, 4080, 0]);
        assert_eq!(rings.drain(&maps).len(), 255);
        assert!(rings.output(0, &[0; 8]));
        assert_eq!([0, 2, 3].map(|what| rings.query(0, what)), [16, 4080, 4096]);
    }
}
