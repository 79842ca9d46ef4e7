// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ports of a run.

use std::collections::BTreeSet;

use crate::Port;

/// Ports have numbers below this.
pub const PORT_COUNT: u32 = 256;

/// The ports that are bound to an interface or an output: packets through others are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// The bound ports; `None` means all.
    bound: Option<BTreeSet<Port>>,
    /// The ports that a flood reaches.
    flooded: BTreeSet<Port>,
}

impl Ports {
    /// The offline default: every port is bound, since no interface can be missing, and a flood reaches the ports of
    /// `inputs` inputs, but at least 1 and 2.
    pub fn offline(inputs: u32) -> Ports {
        Ports { bound: None, flooded: (1..=inputs.clamp(2, PORT_COUNT - 1)).map(Port).collect() }
    }

    /// Exactly these ports.
    pub fn bound(ports: impl IntoIterator<Item = Port>) -> Ports {
        let flooded: BTreeSet<Port> = ports.into_iter().filter(|port| port.0 < PORT_COUNT).collect();
        Ports { bound: Some(flooded.clone()), flooded }
    }

    /// True if `port` is bound.
    pub fn is_bound(&self, port: Port) -> bool {
        port.0 < PORT_COUNT && self.bound.as_ref().is_none_or(|bound| bound.contains(&port))
    }

    /// The ports that a flood of a packet from port `from` reaches, ascending.
    pub fn flooded(&self, from: Port) -> Vec<Port> {
        self.broadcast(Some(from))
    }

    /// The ports that a broadcast reaches, ascending, except `but`.
    pub fn broadcast(&self, but: Option<Port>) -> Vec<Port> {
        self.flooded.iter().copied().filter(|&port| Some(port) != but).collect()
    }
}

impl Default for Ports {
    /// As [`Ports::offline`] with one input.
    fn default() -> Ports {
        Ports::offline(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_excludes_the_ingress_port() {
        assert_eq!(Ports::offline(3).flooded(Port(2)), [Port(1), Port(3)]);
        assert_eq!(Ports::default().flooded(Port(7)).len(), 2);
        assert_eq!(Ports::offline(2).broadcast(None).len(), 2);
        let bound = Ports::bound([Port(4), Port(9), Port(PORT_COUNT)]);
        assert_eq!(bound.flooded(Port(1)), [Port(4), Port(9)]);
    }

    #[test]
    fn only_given_ports_are_bound() {
        assert!(Ports::default().is_bound(Port(0)) && Ports::default().is_bound(Port(PORT_COUNT - 1)));
        assert!(!Ports::default().is_bound(Port(PORT_COUNT)));
        let bound = Ports::bound([Port(4)]);
        assert!(bound.is_bound(Port(4)) && !bound.is_bound(Port(1)));
    }
}
