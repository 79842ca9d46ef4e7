// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lookups in flow tables without a call.
//!
//! Goal: a lookup of a key that is where it is most likely takes neither a call nor a copy of the key.
//!
//! ```text
//!  key ─► hash ─► home bucket: words with the tag ─► first one: entry ─► same key: address of the value
//!                   │ none, and none in other buckets: null                │ no
//!                   └ none here ──────────────────────────────────────────┴─► lookup of the table
//! ```
//!
//! The table's layout is that of [`RawTable`].

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, Value, types};
use flowloom_flowtable::{Bucket, RawTable};

use crate::arithmetic;
use crate::function::{FIELD, MEMORY, Translation};
use crate::key::MAX_COPIED_BYTES;
use crate::state::{MAP_BUCKETS, MAP_ENTRIES};

/// The bytes of keys that are looked up in line.
const KEY_BYTES: std::ops::RangeInclusive<i64> = 4..=MAX_COPIED_BYTES;
/// Words that are compared at once, as a vector.
const VECTOR: MemFlagsData = MemFlagsData::trusted();
/// The bits of a comparison of all words of a bucket that are words.
const WORDS: i64 = (1 << Bucket::WORDS) - 1;

impl Translation<'_, '_> {
    /// The lookup of a key in a hash table; `None` if a call is needed.
    pub(crate) fn search(&mut self, at: usize, map: usize) -> Option<Value> {
        let def = &self.source.maps[map];
        // A use of an entry of an LRU table is noted.
        if def.kind.is_lru() || !KEY_BYTES.contains(&def.key_bytes.into()) {
            return None;
        }
        // SAFETY: the table belongs to the map, which lives; these fields depend on its layout alone.
        let (slot_mask, stride, value_at, bucket_count) = unsafe {
            let RawTable { slot_mask, stride_bytes, value_at_bytes, bucket_count, .. } = *self.source.refs[map].raw;
            (slot_mask, i64::from(stride_bytes), i64::from(value_at_bytes), bucket_count)
        };
        let [candidate, found, absent, call, done] = [(); 5].map(|()| self.builder.create_block());
        let result = self.builder.append_block_param(done, types::I64);
        self.builder.set_cold_block(call);

        let key = self.key(at, map);
        let size = key.word_size();
        let mut words: Vec<(i64, Value)> = Vec::new();
        let mut word = |translation: &mut Self, start: i64| match words.iter().find(|(known, _)| *known == start) {
            Some((_, word)) => *word,
            None => {
                let word = translation.word(&key, start, size);
                words.push((start, word));
                word
            }
        };
        let hash = self.key_hash(map, &mut word);
        let index = self.map_field(map, MAP_BUCKETS);
        let home = self.builder.ins().ushr_imm_u(hash, 32);
        let buckets = self.number(bucket_count);
        let home = self.builder.ins().imul(home, buckets);
        let home = self.builder.ins().ushr_imm_u(home, 32);
        let home = self.builder.ins().ishl_imm_u(home, i64::from(size_of::<Bucket>().ilog2()));
        let bucket = self.builder.ins().iadd(index, home);
        let tag = self.builder.ins().ireduce(types::I32, hash);
        let tag = self.builder.ins().band_imm_u(tag, i64::from(!slot_mask));
        let least = self.builder.ins().iconst(types::I32, i64::from(slot_mask + 1));
        let tag = self.builder.ins().select(tag, tag, least);
        let tag_mask = self.builder.ins().iconst(types::I32, i64::from(!slot_mask));
        let candidates = self.candidates(bucket, tag, tag_mask);
        self.builder.ins().brif(candidates, candidate, &[], absent, &[]);

        self.builder.switch_to_block(candidate);
        let place = self.builder.ins().ctz(candidates);
        let place = self.builder.ins().uextend(types::I64, place);
        let place = self.builder.ins().ishl_imm_u(place, 2);
        let place = self.builder.ins().iadd(bucket, place);
        let slot = self.builder.ins().load(types::I32, FIELD, place, 0);
        let slot = self.builder.ins().band_imm_u(slot, i64::from(slot_mask));
        let slot = self.builder.ins().uextend(types::I64, slot);
        let offset = self.builder.ins().imul_imm_s(slot, stride);
        let entries = self.map_field(map, MAP_ENTRIES);
        let entry = self.builder.ins().iadd(entries, offset);
        let mut differs = None;
        // The last word ends where the key does, so that it may overlap the one before.
        let word_bytes = size.bytes() as i64;
        for start in (0..key.bytes - word_bytes).step_by(size.bytes()).chain([key.bytes - word_bytes]) {
            let own = word(self, start);
            let other = arithmetic::load(&mut self.builder, size, false, entry, start as i32);
            let bits = self.builder.ins().bxor(other, own);
            differs = Some(differs.map_or(bits, |differs| self.builder.ins().bor(differs, bits)));
        }
        // A key has a word at least.
        let differs = differs.unwrap_or(entry);
        self.builder.ins().brif(differs, call, &[], found, &[]);

        self.builder.switch_to_block(found);
        let value = self.builder.ins().iadd_imm_s(entry, value_at);
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);

        self.builder.switch_to_block(absent);
        let reach = self.builder.ins().uload16(types::I64, MEMORY, bucket, Bucket::REACH_OFFSET as i32);
        let null = self.number(0);
        self.builder.ins().brif(reach, call, &[], done, &[BlockArg::Value(null)]);

        self.builder.switch_to_block(call);
        let value = self.call_lookup(at, map);
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);

        self.builder.switch_to_block(done);
        Some(result)
    }

    /// A bit for each word of a bucket whose tag is this one.
    fn candidates(&mut self, bucket: Value, tag: Value, tag_mask: Value) -> Value {
        let tags = self.builder.ins().splat(types::I32X4, tag);
        let mask = self.builder.ins().splat(types::I32X4, tag_mask);
        let quarters = [0, 16, 32, 48].map(|at| {
            let words = self.builder.ins().load(types::I32X4, VECTOR, bucket, at);
            let tags_of_words = self.builder.ins().band(words, mask);
            self.builder.ins().icmp(IntCC::Equal, tags_of_words, tags)
        });
        let [a, b, c, d] = quarters;
        let (low, high) = (self.builder.ins().snarrow(a, b), self.builder.ins().snarrow(c, d));
        let bytes = self.builder.ins().snarrow(low, high);
        let bits = self.builder.ins().vhigh_bits(types::I32, bytes);
        self.builder.ins().band_imm_u(bits, WORDS)
    }
}
