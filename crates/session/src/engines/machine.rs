// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reference machine: it defines the semantics of sources.

use std::sync::Arc;

use flowloom_efsm::{Coverage, Machine};

use super::kind::{Compatibility, Engine, EngineKind};
use crate::error::SessionError;
use crate::load::Loaded;

pub(super) const KIND: EngineKind = EngineKind {
    name: "machine",
    about: "The reference machine",
    is_default: true,
    is_partial: false,
    available: || Ok(()),
    lacks,
    check: |loaded, _| lacks(loaded).map_or_else(Compatibility::yes, Compatibility::no),
    load: |loaded, options| match loaded.function() {
        Some(function) => {
            let machine = Machine::new(Arc::clone(function));
            Ok(if options.counters { machine } else { machine.without_flow_count() }.into())
        }
        None => Err(SessionError::Input(
            "the reference machine runs `.efsm` sources; run objects with --engine interp or kernel".to_owned(),
        )),
    },
    in_place: None,
    on_core: None,
    plugin: None,
};

fn lacks(loaded: &Loaded) -> Option<String> {
    loaded.function().is_none().then(|| "the reference machine runs `.efsm` sources".to_owned())
}

impl Engine for Machine {
    fn coverage(&self) -> Option<Coverage> {
        Some(Machine::coverage(self))
    }
}
