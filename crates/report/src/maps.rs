// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps: scheme, reason, and accesses.

use std::collections::BTreeMap;

use flowloom_ir::{Id, Touch};
use serde::Serialize;

use super::operations::Describer;
use flowloom_plan::Scheme;
use flowloom_plan::{MapPlan, Plan};

/// The accesses and the consistency of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MapUse {
    pub name: String,
    /// The kind, as in bpftool.
    pub kind: String,
    /// The capacity in entries.
    pub entries: u32,
    /// The key size.
    pub key_bytes: u32,
    /// The value size.
    pub value_bytes: u32,
    /// The scheme: `none`, `atomic`, `schedule` or `flush`.
    pub hazard: &'static str,
    /// The reason for it.
    pub reason: String,
    /// The first stage that accesses the table.
    pub read_stage: u32,
    /// The stage at whose end writes commit; none for read-only maps.
    pub write_stage: Option<u32>,
    /// The hold in cycles.
    pub hold_cycles: u32,
    /// The number of queues, if scheduled.
    pub queues: u32,
    /// The stage at which packets restart.
    pub restart_stage: Option<u32>,
    /// The accesses.
    pub users: Vec<MapUser>,
}

impl MapUse {
    /// Replaces what the plan says about consistency by what is rendered: the hold, if packets wait for the map.
    pub(super) fn rendered(&mut self, hold_cycles: Option<u32>) {
        let [atomic, schedule, flush] = [Scheme::Atomic, Scheme::Schedule, Scheme::Flush].map(Scheme::as_str);
        let is_kept_apart = self.hazard == schedule || self.hazard == flush;
        match hold_cycles {
            Some(cycles) => {
                if self.hazard != schedule {
                    (self.hazard, self.reason) =
                        (schedule, "packets wait for those before them with its key".to_owned());
                }
                (self.hold_cycles, self.queues, self.restart_stage) = (cycles, 1, None);
            }
            None if is_kept_apart => {
                (self.hazard, self.reason) = (atomic, "its state slice is one stage as rendered".to_owned());
                (self.hold_cycles, self.queues, self.restart_stage) = (1, 0, None);
            }
            None => {}
        }
    }
}

/// An access to a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MapUser {
    pub node: usize,
    /// The kind of operation.
    pub kind: &'static str,
    /// The operation.
    pub does: String,
    /// The stage in which it begins.
    pub begins_stage: u32,
    /// The stage in which its result is ready.
    pub ends_stage: u32,
    /// The stage at whose end its effect commits.
    pub commit_stage: Option<u32>,
    /// The instruction that it was made for.
    pub instruction: usize,
    /// Its source line: an index into [`lines`](super::Explanation::lines).
    pub line: Option<usize>,
}

/// A hazard region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegionUse {
    pub first_stage: u32,
    /// The last stage, at whose end all effects in the region commit.
    pub last_stage: u32,
    /// The names of the maps.
    pub maps: Vec<String>,
    /// Whether packets may restart at its first stage.
    pub restarts: bool,
    /// The steps of packets that run alone, which access the maps by further keys; 0 where none do.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps: usize,
}

fn is_zero(steps: &usize) -> bool {
    *steps == 0
}

fn users(describer: &Describer<'_>, nodes: impl Iterator<Item = Id>) -> Vec<MapUser> {
    let plan = describer.plan;
    let mut users: Vec<MapUser> = nodes
        .map(|id| {
            let span = plan.schedule.spans[id.index()];
            let instruction = plan.dataflow.graph.insn(id);
            MapUser {
                node: id.index(),
                kind: describer.kind(id),
                does: describer.does(id),
                begins_stage: span.begins.stage,
                ends_stage: span.ends.stage,
                commit_stage: plan.schedule.commits.get(&id).copied(),
                instruction,
                line: describer.line_of(instruction),
            }
        })
        .collect();
    users.sort_by_key(|user| (user.begins_stage, user.node));
    users
}

/// All maps that the program accesses, in the order of their first access; redirect maps included, which no packet
/// writes.
pub(super) fn maps(describer: &Describer<'_>) -> Vec<MapUse> {
    let plan = describer.plan;
    let mut maps: Vec<MapUse> = plan.maps.iter().map(|map| planned(describer, map)).collect();
    let mut others: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    for id in plan.dataflow.used() {
        let Some(access) = plan.dataflow.access(id) else { continue };
        let Some(map) = access.map.filter(|map| plan.maps.iter().all(|own| own.map != *map)) else { continue };
        if matches!(access.touch, Touch::RedirectMap | Touch::HostTable | Touch::Reserve | Touch::Emit) {
            others.entry(map).or_default().push(id);
        }
    }
    for (map, nodes) in others {
        let users = users(describer, nodes.into_iter());
        let sends = users.iter().any(|user| matches!(user.kind, "emit" | "reserve"));
        let programs = users.iter().any(|user| user.kind == "lookup");
        let reason = match sends {
            _ if programs => "selects the next program; only the host writes it",
            true => "carries records in packet order",
            false => "selects the output port; only the host writes it",
        };
        let mut other = described(describer, map, users);
        other.reason = reason.to_owned();
        other.read_stage = other.users.iter().map(|user| user.begins_stage).min().unwrap_or(0);
        other.write_stage = other.users.iter().filter_map(|user| user.commit_stage).max();
        maps.push(other);
    }
    maps.sort_by_key(|map| (map.read_stage, map.write_stage));
    maps
}

fn described(describer: &Describer<'_>, map: u32, users: Vec<MapUser>) -> MapUse {
    let table = describer.plan.dataflow.maps.get(map as usize);
    MapUse {
        name: describer.map_name(map),
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

fn planned(describer: &Describer<'_>, map: &MapPlan) -> MapUse {
    MapUse {
        hazard: map.scheme.as_str(),
        reason: map.reason.clone(),
        read_stage: map.read_stage,
        write_stage: map.write_stage,
        hold_cycles: map.hold_cycles,
        queues: map.queues,
        restart_stage: map.restart_stage,
        ..described(describer, map.map, users(describer, map.uses.all().chain(steps(describer.plan, map.map))))
    }
}

/// The accesses of packets that run alone to a map.
fn steps(plan: &Plan, map: u32) -> impl Iterator<Item = Id> + '_ {
    let accesses = plan.replay.iter().flat_map(|replay| replay.accesses.iter().copied());
    accesses.filter(move |id| plan.dataflow.access(*id).is_some_and(|access| access.map == Some(map)))
}

pub(super) fn regions(plan: &Plan) -> Vec<RegionUse> {
    let of = |map: &u32| plan.maps.iter().find(|own| own.map == *map);
    let region = |region: &flowloom_plan::Region| RegionUse {
        first_stage: region.first,
        last_stage: region.last,
        maps: region.maps.iter().filter_map(of).map(|map| map.name.clone()).collect(),
        restarts: region.maps.iter().filter_map(of).any(|map| map.scheme == Scheme::Flush),
        steps: 0,
    };
    let alone = plan.replay.iter().map(|replay| RegionUse {
        first_stage: replay.first_stage,
        last_stage: replay.decided_stage,
        maps: replay.maps.iter().filter_map(of).map(|map| map.name.clone()).collect(),
        restarts: true,
        steps: replay.steps.len(),
    });
    plan.regions.iter().map(region).chain(alone).collect()
}
