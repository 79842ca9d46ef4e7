// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow keys as words of the header vector.

use flowloom_efsm::layout;
use flowloom_efsm::model::{KeyPart as ModelPart, Stateful};
use flowloom_wire::KeySpec;
use flowloom_wire::field::FieldId;

use super::{Compiler, Lack};
use crate::image::{KeyField, KeyPart, KeySelect, KeyWord};
use crate::word::{Place, Word, presence_of, words_of};

impl Compiler<'_> {
    /// The key extractor of an element with a key.
    pub(super) fn key(&mut self, stateful: &Stateful) -> Result<KeySelect, Lack> {
        let Some(spec) = layout::key_spec(self.function, stateful) else {
            return Err(Lack::new("has no key"));
        };
        let parts: Vec<ModelPart> = stateful.key.iter().flat_map(|key| key.parts.clone()).collect();
        let mut presence = 0;
        for part in &parts {
            if let ModelPart::Field(field) = part
                && presence_of(*field) != 0
            {
                presence |= 1_u32.checked_shl(self.presence_bit(presence_of(*field))).unwrap_or(0);
            }
        }
        // Both ports of a transport header take one word.
        let port = |name| {
            let storage = FieldId::by_name(name);
            parts.iter().position(|part| matches!(part, ModelPart::Field(f) if storage == Some(Place::of(*f).storage)))
        };
        let (source, destination) = (port("l4.sport"), port("l4.dport"));
        let ports = source.zip(destination);
        let mut words: Vec<KeyWord> = Vec::new();
        let mut fields: Vec<KeyField> = Vec::new();
        let plain = |word| KeyWord { word, mirrored: word, rotates: false };
        for (number, part) in parts.iter().enumerate() {
            let first = words.len() as u8;
            if let Some((source, destination)) = ports
                && (number == source || number == destination)
            {
                let at = fields.iter().find(|field| field.is_port).map(|field| field.first);
                if at.is_none() {
                    let word = self.words.read(Word::Ports);
                    words.push(KeyWord { rotates: !spec.pairs().is_empty(), ..plain(word) });
                }
                let shift = if number == source { 16 } else { 0 };
                fields.push(KeyField { first: at.unwrap_or(first), shift, width_bits: 16, is_port: true });
                continue;
            }
            let width_bits = match part {
                ModelPart::Field(field) => field.width_bits(),
                ModelPart::Metadata(at) => self.function.metadata[usize::from(*at)].ty.width_bits,
            };
            for index in 0..words_of(width_bits) {
                let word = match part {
                    ModelPart::Field(field) if Place::of(*field).is_whole(*field) => {
                        Word::Field { field: Place::of(*field).storage, index }
                    }
                    ModelPart::Field(field) => Word::View(*field),
                    ModelPart::Metadata(variable) => Word::Metadata { variable: *variable, index },
                };
                words.push(plain(self.words.read(word)));
            }
            fields.push(KeyField { first, shift: 0, width_bits, is_port: false });
        }
        let mut sides = Vec::new();
        for &(a, b) in spec.pairs() {
            let (left, right) = (fields[a], fields[b]);
            if left.is_port {
                let half = |field: KeyField| {
                    let word = words[usize::from(field.first)].word;
                    if field.shift == 16 { KeyPart::Upper(word) } else { KeyPart::Lower(word) }
                };
                sides.push((half(left), half(right)));
                continue;
            }
            for index in (0..words_of(left.width_bits)).rev() {
                let (l, r) = (usize::from(left.first + index), usize::from(right.first + index));
                sides.push((KeyPart::Whole(words[l].word), KeyPart::Whole(words[r].word)));
                (words[l].mirrored, words[r].mirrored) = (words[r].word, words[l].word);
            }
        }
        Ok(KeySelect { words, sides, presence, fields, bytes: bytes_of(&spec) })
    }
}

fn bytes_of(spec: &KeySpec) -> Vec<(u8, u8)> {
    let of = |(part, offset): (&flowloom_wire::KeyPart, &usize)| (*offset as u8, part.key_bytes() as u8);
    spec.parts().iter().zip(spec.offsets_bytes()).map(of).collect()
}
