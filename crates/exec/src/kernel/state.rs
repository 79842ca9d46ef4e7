//! The state of a program in the kernel: its hash maps, arrays and data sections.

use flowloom_bpf::{Aged, BPF_F_RDONLY_PROG, ContextLayout, MapDef, MapKind};
use flowloom_engine::{EngineError, MapState, Snapshot, SnapshotError};

use super::system;
use crate::sys::RawMap;

/// What changes entries of a map that packets change at the same time.
pub(crate) trait Sweeper {
    /// Replaces the value of `key` by its successor, or removes it where there is none, if it still is what was found;
    /// whether it was removed.
    fn replace(&self, key: &[u8], found: &[u8], successor: Option<&[u8]>) -> Result<bool, EngineError>;
}

/// One map that holds state.
#[derive(Debug)]
pub(crate) struct KernelMap {
    def: MapDef,
    raw: RawMap,
}

impl KernelMap {
    pub(crate) fn new(def: MapDef, raw: RawMap) -> KernelMap {
        KernelMap { def, raw }
    }

    /// Whether a map belongs to the state: not the ports, and not constants that came with the program.
    pub(crate) fn is_state(def: &MapDef) -> bool {
        let is_constant = def.flags & BPF_F_RDONLY_PROG != 0 && def.initial.is_some();
        def.kind != MapKind::Devmap && !is_constant
    }

    fn fails(&self, action: &str) -> impl Fn(std::io::Error) -> EngineError {
        let action = format!("{action} map `{}`", self.def.name);
        move |source| system(action.clone(), source)
    }

    /// What it was made from.
    pub(crate) fn def(&self) -> &MapDef {
        &self.def
    }

    /// What its records mean, where they have deadlines.
    fn timed(&self) -> Option<&ContextLayout> {
        self.def.layout.as_ref().filter(|layout| self.def.kind == MapKind::Hash && !layout.deadline_offsets.is_empty())
    }

    /// Removes the entries that have run out at `now_ns`, or moves them to their successors; how many were removed. Only
    /// where nothing else writes the map meanwhile may there be no `sweeper`.
    pub(crate) fn sweep(&self, now_ns: u64, sweeper: Option<&dyn Sweeper>) -> Result<u64, EngineError> {
        let Some(layout) = self.timed() else { return Ok(0) };
        let mut expired = Vec::new();
        let mut succeeded = Vec::new();
        self.raw
            .entries(|key, value| {
                let mut aged = value.to_vec();
                match layout.age(&mut aged, now_ns) {
                    Aged::Live => {}
                    Aged::Succeeded => succeeded.push((key.to_vec(), value.to_vec(), aged)),
                    Aged::Gone => expired.push((key.to_vec(), value.to_vec())),
                }
            })
            .map_err(self.fails("read"))?;
        for (key, found, aged) in succeeded {
            match sweeper {
                Some(sweeper) => drop(sweeper.replace(&key, &found, Some(&aged))?),
                None => self.raw.update(&key, &aged).map_err(self.fails("write"))?,
            }
        }
        let mut removed = 0;
        for (key, found) in expired {
            removed += u64::from(match sweeper {
                Some(sweeper) => sweeper.replace(&key, &found, None)?,
                None => self.raw.delete(&key).map_err(self.fails("remove an entry of"))?,
            });
        }
        Ok(removed)
    }

    /// How many entries have not run out at `now_ns`.
    pub(crate) fn alive(&self, now_ns: u64) -> Result<u64, EngineError> {
        let mut alive = 0;
        let layout = self.timed();
        let is_gone = |value: &[u8]| layout.is_some_and(|layout| layout.age(&mut value.to_vec(), now_ns) == Aged::Gone);
        self.raw.entries(|_, value| alive += u64::from(!is_gone(value))).map_err(self.fails("read"))?;
        Ok(alive)
    }

    fn contents(&self) -> Result<MapState, EngineError> {
        let mut entries = MapState::new();
        // An array's keys are numbers of this machine; in a snapshot they are little endian everywhere.
        let swap = self.def.kind == MapKind::Array && cfg!(target_endian = "big");
        let put = |key: &[u8], value: &[u8]| {
            let mut key = key.to_vec();
            if swap {
                key.reverse();
            }
            entries.insert(key, value.to_vec());
        };
        self.raw.entries(put).map_err(self.fails("read"))?;
        Ok(entries)
    }

    /// What `wanted` gives it, checked.
    fn check(&self, wanted: &MapState) -> Result<(), SnapshotError> {
        let map = &self.def.name;
        for (key, value) in wanted {
            let parts = [("key", key.len(), self.def.key_bytes), ("value", value.len(), self.def.value_bytes)];
            for (part, found, expected) in parts {
                let expected = expected as usize;
                if found != expected {
                    return Err(SnapshotError::Size { map: map.clone(), part, found, expected });
                }
            }
        }
        let expected = self.def.max_entries as usize;
        if wanted.len() > expected {
            return Err(SnapshotError::TooMany { map: map.clone(), found: wanted.len(), expected });
        }
        if self.def.kind == MapKind::Array {
            let outside = wanted.keys().find(|key| index(key).is_none_or(|i| i >= self.def.max_entries));
            if let Some(key) = outside {
                let found = index(key).map_or_else(|| format!("{key:02x?}"), |i| format!("index {i}"));
                let expected = "indices below the size of the array";
                return Err(SnapshotError::Form { map: map.clone(), expected, found });
            }
        }
        Ok(())
    }

    /// What is in it when the program is loaded; nothing of an array, which goes back to its zeros or data by itself.
    fn preloaded(&self) -> MapState {
        self.def.layout.iter().flat_map(|layout| layout.preloaded.iter().cloned()).collect()
    }

    fn set(&self, wanted: &MapState) -> Result<(), EngineError> {
        if self.def.kind == MapKind::Array {
            let zeros = vec![0; self.def.value_bytes as usize];
            let initial = self.def.initial.as_ref().unwrap_or(&zeros);
            for index in 0..self.def.max_entries {
                let key = index.to_le_bytes();
                let value = wanted.get(&key[..]).unwrap_or(initial);
                self.raw.update(&index.to_ne_bytes(), value).map_err(self.fails("write"))?;
            }
            return Ok(());
        }
        for key in self.contents()?.keys() {
            self.raw.delete(key).map_err(self.fails("clear"))?;
        }
        for (key, value) in wanted {
            self.raw.update(key, value).map_err(self.fails("write"))?;
        }
        Ok(())
    }
}

fn index(key: &[u8]) -> Option<u32> {
    key.try_into().ok().map(u32::from_le_bytes)
}

/// The contents of all maps.
pub(crate) fn snapshot<'a>(maps: impl IntoIterator<Item = &'a KernelMap>) -> Result<Snapshot, EngineError> {
    let mut snapshot = Snapshot::default();
    for map in maps {
        snapshot.maps.insert(map.def.name.clone(), map.contents()?);
    }
    Ok(snapshot)
}

/// Makes `state` the contents of all maps; nothing is changed unless all of it fits.
pub(crate) fn restore(maps: &[KernelMap], state: &Snapshot) -> Result<(), EngineError> {
    for (name, wanted) in &state.maps {
        let Some(map) = maps.iter().find(|map| map.def.name == *name) else {
            let names: Vec<String> = maps.iter().map(|map| format!("`{}`", map.def.name)).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(SnapshotError::UnknownMap { map: name.clone(), known }.into());
        };
        map.check(wanted)?;
    }
    maps.iter().try_for_each(|map| match state.maps.get(&map.def.name) {
        Some(wanted) => map.set(wanted),
        None => map.set(&map.preloaded()),
    })
}
