//! The maps: how each is kept consistent, why, and who uses it.

use std::collections::BTreeMap;

use flowloom_ir::{Id, Touch};
use serde::Serialize;

use super::operations::Sayer;
use crate::plan::{MapPlan, Plan};
use crate::timing::Scheme;

/// How a map is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MapUse {
    /// Its name.
    pub name: String,
    /// Its kind, as bpftool calls it.
    pub kind: String,
    /// Entries that it holds.
    pub entries: u32,
    /// Length of a key.
    pub key_bytes: u32,
    /// Length of a value.
    pub value_bytes: u32,
    /// How it is kept consistent: `none`, `atomic`, `schedule` or `flush`.
    pub hazard: &'static str,
    /// Why so.
    pub reason: String,
    /// The first stage in which its table works for a packet.
    pub read_stage: u32,
    /// The stage at whose end its writes show; none where packets only read it.
    pub write_stage: Option<u32>,
    /// For how many cycles a packet keeps others with the same key out.
    pub hold_cycles: u32,
    /// Queues in front of it, where it is scheduled.
    pub queues: u32,
    /// Where packets start again that have read too early.
    pub restart_stage: Option<u32>,
    /// Who reads and writes it.
    pub users: Vec<MapUser>,
}

/// Something that touches a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MapUser {
    /// The operation.
    pub node: usize,
    /// What it is.
    pub kind: &'static str,
    /// What it does.
    pub does: String,
    /// The stage in which it begins.
    pub begins_stage: u32,
    /// The stage in which its answer is there.
    pub ends_stage: u32,
    /// The stage at whose end its effect shows.
    pub commit_stage: Option<u32>,
    /// The instruction that it was made for.
    pub instruction: usize,
    /// Its source line: a place in [`lines`](super::Explanation::lines).
    pub line: Option<usize>,
}

/// Stages in which packets are between reads and writes of maps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegionUse {
    /// The first one.
    pub first_stage: u32,
    /// The last one, at whose end everything in it shows.
    pub last_stage: u32,
    /// The maps.
    pub maps: Vec<String>,
    /// Whether packets may start again at its beginning.
    pub restarts: bool,
}

fn users(said: &Sayer<'_>, nodes: impl Iterator<Item = Id>) -> Vec<MapUser> {
    let plan = said.plan;
    let mut users: Vec<MapUser> = nodes
        .map(|id| {
            let span = plan.schedule.spans[id.index()];
            let instruction = plan.dataflow.graph.insn(id);
            MapUser {
                node: id.index(),
                kind: said.kind(id),
                does: said.does(id),
                begins_stage: span.begins.stage,
                ends_stage: span.ends.stage,
                commit_stage: plan.schedule.commits.get(&id).copied(),
                instruction,
                line: said.line_of(instruction),
            }
        })
        .collect();
    users.sort_by_key(|user| (user.begins_stage, user.node));
    users
}

/// All maps that the program touches, in the order in which they are first touched; also those that only tell where packets go,
/// which no packet changes.
pub(super) fn maps(said: &Sayer<'_>) -> Vec<MapUse> {
    let plan = said.plan;
    let mut maps: Vec<MapUse> = plan.maps.iter().map(|map| planned(said, map)).collect();
    let mut others: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    for id in plan.dataflow.used() {
        let Some(access) = plan.dataflow.access(id) else { continue };
        let Some(map) = access.map.filter(|map| plan.maps.iter().all(|own| own.map != *map)) else { continue };
        if matches!(access.touch, Touch::RedirectMap | Touch::Table | Touch::Emits) {
            others.entry(map).or_default().push(id);
        }
    }
    for (map, nodes) in others {
        let users = users(said, nodes.into_iter());
        let sends = users.iter().any(|user| user.kind == "emit");
        let programs = users.iter().any(|user| user.kind == "lookup");
        let reason = match sends {
            _ if programs => "tells which program goes on; only the host changes it",
            true => "records leave by it, in the order of the packets",
            false => "tells where packets go; only the host changes it",
        };
        let mut other = described(said, map, users);
        other.reason = reason.to_owned();
        other.read_stage = other.users.iter().map(|user| user.begins_stage).min().unwrap_or(0);
        other.write_stage = other.users.iter().filter_map(|user| user.commit_stage).max();
        maps.push(other);
    }
    maps.sort_by_key(|map| (map.read_stage, map.write_stage));
    maps
}

fn described(said: &Sayer<'_>, map: u32, users: Vec<MapUser>) -> MapUse {
    let table = said.plan.dataflow.maps.get(map as usize);
    MapUse {
        name: said.map_name(map),
        kind: table.map_or_else(String::new, |table| table.kind.to_string()),
        entries: table.map_or(0, |table| table.max_entries),
        key_bytes: table.map_or(0, |table| table.key_bytes),
        value_bytes: table.map_or(0, |table| table.value_bytes),
        hazard: Scheme::None.as_str(),
        reason: String::new(),
        read_stage: 0,
        write_stage: None,
        hold_cycles: 1,
        queues: 0,
        restart_stage: None,
        users,
    }
}

fn planned(said: &Sayer<'_>, map: &MapPlan) -> MapUse {
    MapUse {
        hazard: map.scheme.as_str(),
        reason: map.reason.clone(),
        read_stage: map.read_stage,
        write_stage: map.write_stage,
        hold_cycles: map.hold_cycles,
        queues: map.queues,
        restart_stage: map.restart_stage,
        ..described(said, map.map, users(said, map.uses.all()))
    }
}

pub(super) fn regions(plan: &Plan) -> Vec<RegionUse> {
    let of = |map: &u32| plan.maps.iter().find(|own| own.map == *map);
    let region = |region: &crate::hazard::Region| RegionUse {
        first_stage: region.first,
        last_stage: region.last,
        maps: region.maps.iter().filter_map(of).map(|map| map.name.clone()).collect(),
        restarts: region.maps.iter().filter_map(of).any(|map| map.scheme == Scheme::Flush),
    };
    plan.regions.iter().map(region).collect()
}
