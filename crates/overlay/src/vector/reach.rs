// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sources that a word of the header vector can hold, and the placement of a function's words.
//!
//! # Goal
//! A multiplexer from every source to every word would take as much logic as the whole rest of the parse block. A word
//! holds a constant, or one of [`CHOICES`] - 1 sources. Both words of a pair have the same sources, so that words that
//! change places are in one pair.
//!
//! # Steps
//! 1. Pairs of words that change places take whole pairs.
//! 2. The other words take the words that are left: a bipartite matching. Metadata, a constant, comes last: it fits
//!    everywhere. If there is none, step 1 is repeated with the next choice of pairs.
//! 3. The image is renumbered. Words that are left are [`Word::Unused`].
//!
//! # Limits
//! Step 1 is repeated [`TRIES`] times at most.

use std::sync::LazyLock;

use super::{CONSTANT, FIRST_SLOT, SOURCES, USER_SLOTS, VectorError, source_words, user_slice, word_name};
use crate::image::{
    Action, Comparator, ContextStage, Image, KeyPart, Offset, Operand, Stage, Step, Terminal, Value, WriteSource,
};
use crate::word::Word;
use flowloom_wire::Graph;

/// Sources of a word, the constant included.
pub const CHOICES: usize = 16;
/// Pairs of words.
const PAIRS: usize = 16;
/// Pairs of words of the smallest machine.
const SMALL_PAIRS: usize = 12;
/// Choices of pairs that are tried.
const TRIES: u32 = 10_000;
/// Sources that are in three pairs; all others are in two.
const FREQUENT: [&str; 47] = [
    "ports",
    "next_sequence",
    "clock[0]",
    "clock[1]",
    "slot[0]",
    "slot[1]",
    "slot[2]",
    "slot[3]",
    "slot[4]",
    "slot[5]",
    "slot[6]",
    "slot[7]",
    "pkt.len",
    "pkt.port",
    "eth.dst[0]",
    "eth.src[0]",
    "ip.src[0]",
    "ip.src[1]",
    "ip.src[2]",
    "ip.src[3]",
    "ip.dst[0]",
    "ip.dst[1]",
    "ip.dst[2]",
    "ip.dst[3]",
    "tcp.seq",
    "tcp.ack",
    "mpls.label",
    "eth.dst[1]",
    "eth.src[1]",
    "eth.type",
    "vlan.type",
    "l4.sport",
    "l4.dport",
    "tcp.window",
    "ip.frag",
    "vlan.id",
    "ip.proto",
    "ip.tos",
    "ip.ttl",
    "tcp.flags",
    "icmpx.type",
    "ip.version",
    "mpls.tc",
    "tcp.is_ack",
    "tcp.is_rst",
    "tcp.is_syn",
    "tcp.is_fin",
];

/// The sources of the words of each pair, by the number that selects them.
pub fn reach() -> &'static [Vec<u8>] {
    static REACH: LazyLock<Vec<Vec<u8>>> = LazyLock::new(table);
    &REACH
}

/// Each source, with the one that it may change places with, is put in the pairs that have the fewest. The small
/// machine has only the first pairs, so they have every source.
fn table() -> Vec<Vec<u8>> {
    let mut pairs = vec![vec![CONSTANT as u8]; PAIRS];
    let is_frequent = |name: &str| FREQUENT.contains(&name);
    let is_slot = |name: &str| name.starts_with("slot");
    type IsTaken<'f> = &'f dyn Fn(&str) -> bool;
    let rounds: [(IsTaken<'_>, usize); 6] = [
        (&is_frequent, SMALL_PAIRS),
        (&|name| !is_frequent(name), SMALL_PAIRS),
        (&is_frequent, SMALL_PAIRS),
        (&is_slot, SMALL_PAIRS),
        (&|name| is_frequent(name) && !is_slot(name), PAIRS),
        (&|name| !is_frequent(name), PAIRS),
    ];
    for (round, (is_taken, limit)) in rounds.into_iter().enumerate() {
        for (number, name) in SOURCES.iter().enumerate().skip(1) {
            let partner = partner(name);
            if partner.is_some_and(|partner| partner < number) || !is_taken(name) {
                continue;
            }
            let own: Vec<u8> = [Some(number), partner].into_iter().flatten().map(|source| source as u8).collect();
            let free = (0..limit)
                .map(|at| (at + 5 * number + 7 * round) % limit)
                .filter(|&pair| !pairs[pair].contains(&own[0]) && pairs[pair].len() + own.len() <= CHOICES);
            if let Some(pair) = free.min_by_key(|&pair| pairs[pair].len()) {
                pairs[pair].extend(own);
            }
        }
    }
    for pair in &mut pairs {
        pair.sort_unstable();
        pair.resize(CHOICES, CONSTANT as u8);
    }
    pairs
}

/// The source of the other direction.
fn partner(name: &str) -> Option<usize> {
    let other = match name.split_once('.')? {
        ("ip" | "eth", field) if field.starts_with("src") => name.replace("src", "dst"),
        ("ip" | "eth", field) if field.starts_with("dst") => name.replace("dst", "src"),
        ("l4", "sport") => "l4.dport".to_owned(),
        ("l4", "dport") => "l4.sport".to_owned(),
        _ => return None,
    };
    SOURCES.iter().position(|known| *known == other)
}

/// The sources of the words of an image; a constant for metadata.
///
/// # Errors
/// A word has none.
pub(super) fn sources(image: &Image, graph: &Graph) -> Result<Vec<u32>, VectorError> {
    let mut slots = 0;
    let source = |&word: &Word| match word {
        Word::Metadata { .. } | Word::Unused => Ok(CONSTANT),
        _ if user_slice(word).is_some() => {
            slots += 1;
            Ok(FIRST_SLOT + slots - 1)
        }
        _ => {
            let source = source_words().iter().position(|known| *known == Some(word));
            source.map(|at| at as u32).ok_or_else(|| VectorError::Word { word: word_name(graph, word) })
        }
    };
    let sources = image.words.iter().map(source).collect();
    match slots as usize > USER_SLOTS {
        true => Err(VectorError::Slots { found: slots as usize, limit: USER_SLOTS }),
        false => sources,
    }
}

/// The sources of the words of a placed image: those that hold fields of user-defined headers take the slots that they
/// reach.
///
/// # Errors
/// A word has no source, or cannot hold it.
pub(super) fn placed_sources(image: &Image, graph: &Graph) -> Result<Vec<u32>, VectorError> {
    let mut sources = sources(image, graph)?;
    let users: Vec<usize> = (0..image.words.len()).filter(|&at| user_slice(image.words[at]).is_some()).collect();
    let holds = |word: usize, source: u32| reach().get(word / 2).is_some_and(|pair| pair.contains(&(source as u8)));
    if let Some(slots) = matching(users.len(), USER_SLOTS, |at, slot| holds(users[at], FIRST_SLOT + slot as u32)) {
        for (word, slot) in users.into_iter().zip(slots) {
            sources[word] = FIRST_SLOT + slot as u32;
        }
    }
    match (0..sources.len()).find(|&word| !holds(word, sources[word])) {
        Some(number) => Err(VectorError::Reach { word: word_name(graph, image.words[number]), number }),
        None => Ok(sources),
    }
}

/// The image with its words where the header vector of the machine can hold them.
///
/// # Errors
/// A word has no source, or the words do not fit.
pub fn place(image: &Image, graph: &Graph) -> Result<Image, VectorError> {
    let sources = sources(image, graph)?;
    let mut swapped: Vec<(u8, u8)> = image
        .stages
        .iter()
        .flatten()
        .flat_map(|stage| stage.rows.iter().map(|row| &row.action).chain([&stage.otherwise]))
        .flat_map(|action| action.swaps.iter().copied())
        .collect();
    swapped.sort_unstable();
    swapped.dedup();
    let words = image.parameters.words as usize;
    match placement(&sources, &swapped, words) {
        Some(to) => Ok(renumbered(image, &to)),
        None => Err(VectorError::Place { found: image.words.len(), limit: words }),
    }
}

/// The new number of each word.
fn placement(sources: &[u32], swapped: &[(u8, u8)], words: usize) -> Option<Vec<u8>> {
    let mut search = Search { sources, swapped, to: vec![None; sources.len()], taken: vec![false; words], left: TRIES };
    search.pairs(0)
}

/// A search for places: pairs that change places take whole pairs, one after the other.
struct Search<'s> {
    sources: &'s [u32],
    swapped: &'s [(u8, u8)],
    /// The new number of each word so far.
    to: Vec<Option<u8>>,
    taken: Vec<bool>,
    /// Matchings of other words that are still tried.
    left: u32,
}

impl Search<'_> {
    fn holds(&self, pair: usize, word: usize) -> bool {
        let source = self.sources[word];
        source == CONSTANT || reach()[pair].contains(&(source as u8))
    }

    /// Places the pairs from number `at` on, then the other words.
    fn pairs(&mut self, at: usize) -> Option<Vec<u8>> {
        let Some(&(a, b)) = self.swapped.get(at) else { return self.others() };
        let (a, b) = (usize::from(a), usize::from(b));
        for pair in 0..self.taken.len() / 2 {
            let place = 2 * pair;
            if self.left == 0 || self.taken[place] || !self.holds(pair, a) || !self.holds(pair, b) {
                continue;
            }
            self.set(place, [a, b], true);
            if let Some(found) = self.pairs(at + 1) {
                return Some(found);
            }
            self.set(place, [a, b], false);
        }
        None
    }

    fn set(&mut self, place: usize, words: [usize; 2], is_taken: bool) {
        for (at, word) in words.into_iter().enumerate() {
            self.taken[place + at] = is_taken;
            self.to[word] = is_taken.then_some((place + at) as u8);
        }
    }

    fn others(&mut self) -> Option<Vec<u8>> {
        self.left -= 1;
        let mut others: Vec<usize> = (0..self.sources.len()).filter(|&word| self.to[word].is_none()).collect();
        others.sort_by_key(|&word| self.sources[word] == CONSTANT);
        let places = matching(others.len(), self.taken.len(), |at, place| {
            !self.taken[place] && self.holds(place / 2, others[at])
        })?;
        let mut to = self.to.clone();
        for (word, place) in others.into_iter().zip(places) {
            to[word] = Some(place as u8);
        }
        to.into_iter().collect()
    }
}

/// A bipartite matching: a place for each item; `None` if there is none.
fn matching(items: usize, places: usize, fits: impl Fn(usize, usize) -> bool) -> Option<Vec<usize>> {
    fn augment(
        item: usize,
        fits: &impl Fn(usize, usize) -> bool,
        seen: &mut [bool],
        of_place: &mut [Option<usize>],
    ) -> bool {
        for place in 0..seen.len() {
            if seen[place] || !fits(item, place) {
                continue;
            }
            seen[place] = true;
            if of_place[place].is_none_or(|other| augment(other, fits, seen, of_place)) {
                of_place[place] = Some(item);
                return true;
            }
        }
        false
    }
    let mut of_place = vec![None; places];
    for item in 0..items {
        if !augment(item, &fits, &mut vec![false; places], &mut of_place) {
            return None;
        }
    }
    (0..items).map(|item| of_place.iter().position(|found| *found == Some(item))).collect()
}

/// The image with other numbers of words.
fn renumbered(image: &Image, to: &[u8]) -> Image {
    let mut image = image.clone();
    let mut words = vec![Word::Unused; to.iter().map(|at| usize::from(*at) + 1).max().unwrap_or(0)];
    for (word, at) in image.words.iter().zip(to) {
        words[usize::from(*at)] = *word;
    }
    image.words = words;
    let new = Renumber { to };
    image.initial_metadata.iter_mut().for_each(|(word, _)| new.word(word));
    image.stages.iter_mut().flatten().for_each(|stage| new.stage(stage));
    image
}

/// Replaces numbers of words.
struct Renumber<'t> {
    to: &'t [u8],
}

impl Renumber<'_> {
    fn word(&self, word: &mut u8) {
        *word = self.to[usize::from(*word)];
    }

    fn operand(&self, operand: &mut Operand) {
        if let Operand::Word(word) = operand {
            self.word(word);
        }
    }

    fn stage(&self, stage: &mut Stage) {
        stage.match_words.iter_mut().for_each(|word| self.word(word));
        for Comparator { left, right, offset, .. } in &mut stage.comparators {
            self.operand(left);
            self.operand(right);
            if let Offset::Plus(operand) | Offset::Minus(operand) = offset {
                self.operand(operand);
            }
        }
        for average in &mut stage.averages {
            self.operand(&mut average.average);
            self.operand(&mut average.sample);
        }
        stage.rows.iter_mut().for_each(|row| self.action(&mut row.action));
        self.action(&mut stage.otherwise);
        if let Some(ContextStage { key: Some(key), .. }) = &mut stage.context {
            for word in &mut key.words {
                self.word(&mut word.word);
                self.word(&mut word.mirrored);
            }
            for part in key.sides.iter_mut().flat_map(|(left, right)| [left, right]) {
                let (KeyPart::Whole(word) | KeyPart::Upper(word) | KeyPart::Lower(word)) = part;
                self.word(word);
            }
        }
    }

    fn action(&self, action: &mut Action) {
        let value = |value: &mut Value| {
            self.operand(&mut value.left);
            self.operand(&mut value.right);
        };
        action.alus.iter_mut().for_each(|alu| value(&mut alu.value));
        for write in &mut action.writes {
            self.word(&mut write.word);
            if let WriteSource::Operand(operand) = &mut write.source {
                self.operand(operand);
            }
            write.if_rejected.iter_mut().for_each(|operand| self.operand(operand));
        }
        for (a, b) in &mut action.swaps {
            self.word(a);
            self.word(b);
        }
        for step in &mut action.steps {
            match step {
                Step::PushVlan(entry) | Step::PushMpls(entry) => self.operand(&mut entry.operand),
                Step::Clone(operand) => self.operand(operand),
                Step::PopVlan | Step::PopMpls => {}
            }
        }
        if let Terminal::Forward(operand) = &mut action.terminal {
            self.operand(operand);
        }
    }
}

#[cfg(test)]
mod tests;
