// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The replacement of a function on interfaces by another one, while packets pass.
//!
//! ```text
//!  Live ──handover──► Handover ──prepare: maps, verifier; takes seconds, on another thread──► Successor
//!    ▲                                                                                            │
//!    └── replace: one update of each link ◄───────────────────────────────────────────────────────┘
//!            └──► Former: the last records of the old function
//! ```
//!
//! An update of a link exchanges the program of an interface: every packet meets the old program or the new one. Both
//! have the maps that are taken over, so nothing that packets write meanwhile is lost; they lock its contexts by the
//! same cells ([`super::lock_places`]).

use std::os::fd::AsFd;

use flowloom_engine::{EngineError, Event};
use flowloom_isa::{MapDef, Program};

use super::error::LiveError;
use super::interface::Interface;
use super::loaded::{Estate, Loaded};
use super::{Live, LiveOptions};
use crate::error::ExecError;
use crate::sys::grace_period;

/// What a function that runs leaves to its successor. It stays valid until the function is replaced.
#[derive(Debug, Clone)]
pub struct Handover {
    estate: Estate,
    interfaces: Vec<Interface>,
    /// The number of functions before the one that runs.
    generation: u64,
}

/// A function in the kernel that is ready to replace the one that runs.
#[derive(Debug)]
pub struct Successor {
    loaded: Loaded,
    /// The maps taken over, by name, with the number of their entries.
    kept: Vec<(String, u64)>,
    /// That of the function that it replaces.
    generation: u64,
}

/// A function that has been replaced: no packet is in it any longer.
#[derive(Debug)]
pub struct Former(Loaded);

impl Handover {
    /// The maps of the program that runs.
    pub fn defs(&self) -> &[MapDef] {
        &self.estate.defs
    }

    /// The interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Loads another program for the same interfaces. It takes over the maps in `kept`, pairs of numbers: that of its
    /// own map, and that of the running program's.
    ///
    /// # Errors
    /// The program cannot be bound, or the verifier refuses it.
    pub fn prepare(
        &self,
        program: &Program,
        kept: &[(usize, usize)],
        options: LiveOptions<'_>,
    ) -> Result<Successor, ExecError> {
        let loaded = Loaded::new(program, &self.interfaces, options, Some((&self.estate, kept)))?;
        let is_kept = |index: usize| kept.iter().any(|(new, _)| *new == index);
        let kept = loaded.maps.iter().filter(|map| is_kept(map.index()));
        let kept = kept.map(|map| Ok((map.def().name.clone(), map.entries()?)));
        let kept = kept.collect::<Result<_, EngineError>>().map_err(ExecError::State)?;
        Ok(Successor { loaded, kept, generation: self.generation })
    }
}

impl Successor {
    /// The maps taken over, with the number of their entries.
    pub fn kept(&self) -> &[(String, u64)] {
        &self.kept
    }

    /// The tables that both programs lock, but not by the same cells: of two packets on different CPUs at the moment of
    /// the replacement, one may overwrite what the other one has changed.
    pub fn locked_differently(&self) -> &[String] {
        &self.loaded.differing
    }
}

impl Former {
    /// Its last records for user space.
    ///
    /// # Errors
    /// The ring buffer cannot be read.
    pub fn events(&mut self) -> Result<Vec<Event>, EngineError> {
        self.0.events()
    }

    /// The number of records lost because the ring buffer was full.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn events_lost(&self) -> Result<u64, EngineError> {
        self.0.events_lost()
    }
}

impl Live {
    /// What a successor takes over.
    pub fn handover(&self) -> Handover {
        let interfaces = self.attached.iter().map(|(interface, _)| interface.clone()).collect();
        Handover { estate: self.loaded.estate.clone(), interfaces, generation: self.generation }
    }

    /// Puts `successor`, which was prepared for it, in its place. Counts of verdicts go on, those of sweeps begin again.
    ///
    /// # Errors
    /// An interface refuses the program, or another process has changed its link; the old program then runs on
    /// everywhere, unless the message says otherwise.
    pub fn replace(&mut self, successor: Successor) -> Result<Former, LiveError> {
        if successor.generation != self.generation {
            let source = std::io::Error::other("it was prepared for one that has been replaced since");
            return Err(LiveError::System { action: "replace the function".to_owned(), source });
        }
        let new = successor.loaded;
        for (number, (interface, link)) in self.attached.iter().enumerate() {
            let old = self.loaded.program(number);
            let Err(source) = new.program(number).replace(old, link.as_fd()) else { continue };
            let mut hint = String::new();
            for (number, (interface, link)) in self.attached[..number].iter().enumerate() {
                let back = self.loaded.program(number).replace(new.program(number), link.as_fd());
                if let Err(error) = back {
                    hint.push_str(&format!("; the new program stays on `{}`: {error}", interface.name()));
                }
            }
            return Err(LiveError::Replace { name: interface.name().to_owned(), source, hint });
        }
        let former = std::mem::replace(&mut self.loaded, new);
        self.swept.clear();
        self.generation += 1;
        grace_period();
        Ok(Former(former))
    }
}
