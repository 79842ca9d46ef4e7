// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of use of the rows of a table: a doubly linked list.
//!
//! ```text
//!   oldest ─► row ⇄ row ⇄ … ⇄ row ◄─ newest
//! ```
//!
//! A use takes a row out of the list and appends it. So the oldest row is the one whose last use is the longest ago,
//! not one of a few candidates: the next one to be evicted is known before it is needed.

/// The list.
#[derive(Debug, Clone, Default)]
pub struct Recency {
    links: Vec<Option<Links>>,
    ends: Option<Ends>,
}

/// The neighbours of a row; at the ends of the list they have no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Links {
    older: u32,
    newer: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    oldest: u32,
    newest: u32,
}

impl Recency {
    /// An empty list of rows with numbers below `rows`.
    pub fn new(rows: u32) -> Recency {
        Recency { links: vec![None; rows as usize], ends: None }
    }

    /// The row that was not used for the longest time.
    pub fn oldest(&self) -> Option<u32> {
        self.ends.map(|ends| ends.oldest)
    }

    /// Whether the list has a row.
    pub fn contains(&self, row: u32) -> bool {
        self.link(row).is_some()
    }

    /// Uses a row: it becomes the newest one, whether the list has it or not.
    pub fn touch(&mut self, row: u32) {
        self.remove(row);
        let newest = self.ends.map(|ends| ends.newest);
        if let Some(links) = newest.and_then(|newest| self.link_mut(newest)) {
            links.newer = row;
        }
        self.links[row as usize] = Some(Links { older: newest.unwrap_or(row), newer: row });
        self.ends = Some(Ends { oldest: self.ends.map_or(row, |ends| ends.oldest), newest: row });
    }

    /// Takes a row out; returns whether it was in the list.
    pub fn remove(&mut self, row: u32) -> bool {
        let (Some(links), Some(ends)) = (self.link(row), self.ends) else { return false };
        self.links[row as usize] = None;
        if ends.oldest == row && ends.newest == row {
            self.ends = None;
            return true;
        }
        let mut ends = ends;
        match row == ends.oldest {
            true => ends.oldest = links.newer,
            false => self.link_mut(links.older).into_iter().for_each(|older| older.newer = links.newer),
        }
        match row == ends.newest {
            true => ends.newest = links.older,
            false => self.link_mut(links.newer).into_iter().for_each(|newer| newer.older = links.older),
        }
        self.ends = Some(ends);
        true
    }

    /// Takes the oldest row out.
    pub fn evict(&mut self) -> Option<u32> {
        let oldest = self.oldest()?;
        self.remove(oldest);
        Some(oldest)
    }

    /// Puts another row in the place of one; returns whether that was in the list.
    pub fn replace(&mut self, from: u32, to: u32) -> bool {
        let (Some(links), Some(mut ends)) = (self.link(from), self.ends) else { return false };
        self.links[from as usize] = None;
        self.links[to as usize] = Some(links);
        match from == ends.oldest {
            true => ends.oldest = to,
            false => self.link_mut(links.older).into_iter().for_each(|older| older.newer = to),
        }
        match from == ends.newest {
            true => ends.newest = to,
            false => self.link_mut(links.newer).into_iter().for_each(|newer| newer.older = to),
        }
        self.ends = Some(ends);
        true
    }

    /// The rows, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.oldest();
        std::iter::from_fn(move || {
            let row = next?;
            next = self.link(row).filter(|_| self.ends.is_some_and(|ends| ends.newest != row)).map(|links| links.newer);
            Some(row)
        })
    }

    /// Panics unless the links lead from the oldest row to the newest one and back, over all rows.
    pub fn check_invariants(&self) {
        let rows: Vec<u32> = self.iter().collect();
        assert_eq!(rows.len(), self.links.iter().flatten().count());
        assert_eq!(rows.last().copied(), self.ends.map(|ends| ends.newest));
        let back = rows.windows(2).all(|two| self.link(two[1]).is_some_and(|links| links.older == two[0]));
        assert!(back, "{rows:?}");
    }

    fn link(&self, row: u32) -> Option<Links> {
        self.links.get(row as usize).copied().flatten()
    }

    fn link_mut(&mut self, row: u32) -> Option<&mut Links> {
        self.links.get_mut(row as usize)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use flowloom_random::{Draw, SplitMix64};

    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_use() {
        for seed in 1..=20 {
            let mut rng = SplitMix64::new(seed);
            let rows = [1, 2, 3, 20][seed as usize % 4];
            let (mut list, mut model) = (Recency::new(rows), Vec::new());
            for _ in 0..2000 {
                let row = rng.below(rows.into()) as u32;
                match rng.below(8) {
                    0 => {
                        assert_eq!(list.remove(row), model.contains(&row));
                        model.retain(|own| *own != row);
                    }
                    1 => {
                        let oldest = (!model.is_empty()).then(|| model.remove(0));
                        assert_eq!(list.evict(), oldest);
                    }
                    2 => {
                        let free = (0..rows).find(|row| !model.contains(row));
                        if let Some(to) = free {
                            assert_eq!(list.replace(row, to), model.contains(&row));
                            model.iter_mut().filter(|own| **own == row).for_each(|own| *own = to);
                        }
                    }
                    _ => {
                        list.touch(row);
                        model.retain(|own| *own != row);
                        model.push(row);
                    }
                }
                list.check_invariants();
                assert_eq!(list.iter().collect::<Vec<_>>(), model, "seed {seed}");
                assert_eq!(list.contains(row), model.contains(&row));
            }
        }
    }
}
